"""The programs for TorchRL's users run with the newest TorchRL and steppe."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from tensordict import TensorDict

from steppe_testing import assert_equal_data
from tools.documents import blocks, program
from tools.workspace import ROOT

pytest.importorskip("torchrl")

PAGE = ROOT / "docs" / "migrating-from-torchrl.md"
RECIPES = ROOT / "docs" / "train-with-torchrl.md"
# The import of steppe, over one line or several.
OURS = re.compile(r"^from steppe import (\(.*?^\)|[^(\n]*)$", re.DOTALL | re.MULTILINE)


def run(source: str, folder: Path, *, seconds: int = 500) -> str:
    folder.mkdir()
    (folder / "program.py").write_text(source, encoding="utf-8")
    done = subprocess.run([sys.executable, "program.py"], cwd=folder, capture_output=True, text=True, timeout=seconds)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.timeout(1100)
def test_a_program_gives_the_same_data_with_either_import_line(tmp_path):
    ours = program(PAGE, "cart.py")
    theirs, replaced = OURS.subn(
        next(each.rstrip() for each in blocks(PAGE) if each.startswith("from torchrl.collectors")), ours
    )

    run(ours, tmp_path / "steppe")
    run(theirs, tmp_path / "torchrl")
    found, expected = (TensorDict.load_memmap(tmp_path / name / "transitions") for name in ("steppe", "torchrl"))

    assert replaced == 1
    assert "steppe" not in theirs
    assert expected.batch_size == (4, 150)
    assert expected["next", "done"].any()
    assert (found.pop(("collector", "policy_version")) == 0).all(), "the one entry that steppe has and TorchRL has not"
    assert_equal_data(found, expected)


@pytest.mark.timeout(700)
def test_torchrls_losses_learn_cartpole_from_our_data(tmp_path):
    told = run(program(RECIPES, "ppo.py"), tmp_path / "train", seconds=600)

    assert float(told.rpartition(":")[2]) > 150
