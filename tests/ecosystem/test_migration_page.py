"""The page for users of TorchRL keeps up with the code."""

from __future__ import annotations

import re
import subprocess

import pytest
from tensordict import TensorDict

import steppe
from steppe.batched import AsyncEnvPool, SerialEnv
from steppe.collectors.collector_arguments import IGNORED
from tests.forked import python
from tools.documents import program
from tools.workspace import ROOT

DOCUMENT = ROOT / "docs" / "migrating-from-torchrl.md"
PAGE = DOCUMENT.read_text(encoding="utf-8")


@pytest.mark.timeout(330)
def test_the_program_on_the_page_runs_with_steppe_alone(tmp_path):
    (tmp_path / "cart.py").write_text(program(DOCUMENT, "cart.py"), encoding="utf-8")
    done = subprocess.run([*python(), "cart.py"], cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    data = TensorDict.load_memmap(tmp_path / "transitions")

    assert data.batch_size == (4, 150)
    assert data["next", "truncated"].any()
    assert data["next", "terminated"].any()
    assert data["next", "step_count"].max() == 19


@pytest.mark.parametrize("argument", sorted({*SerialEnv._ignored, *AsyncEnvPool._ignored, *IGNORED}))
def test_an_argument_without_an_effect_is_on_the_page(argument):
    assert f"`{argument}`" in PAGE


def test_the_names_that_old_ones_became_exist():
    rows = [line.split("|")[1:-1] for line in PAGE.split("## Names of older versions")[1].split("##")[0].splitlines()]
    names = [row[1].split("`")[1] for row in rows if len(row) == 2 and re.fullmatch("`[^`]+`", row[1].strip())]

    assert len(names) >= 10
    assert [name for name in names if not name.startswith('"') and not hasattr(steppe, name)] == []
