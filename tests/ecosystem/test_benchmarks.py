"""The comparison of two checkouts, of this one with itself."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.limits import CHILD
from tools.workspace import ROOT


def compare(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "benchmarks/compare.py"), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=CHILD, env={**os.environ, "COLUMNS": "150"})


@pytest.mark.slow
def test_rows_of_two_checkouts_are_compared_written_and_read(tmp_path: Path) -> None:
    file, rows = tmp_path / "figures.json", ("--rows", "raw*CartPole", "rollout, CartPole", "--rounds", "2")

    first = compare(str(ROOT), str(ROOT), *rows, "--write", str(file))
    second = compare(str(ROOT), *rows, "--read", str(file), "--limit", "0.0001")

    assert first.returncode == 0, first.stderr
    content = json.loads(file.read_text())
    assert list(content["rows"]) == ["raw gymnasium, CartPole", "rollout, CartPole"]
    row = content["rows"]["rollout, CartPole"]
    assert row["ratio"] == pytest.approx(row["new"] / row["old"], abs=0.01)
    assert "rollout, CartPole" in first.stdout
    assert second.returncode == 1
    assert "more than 0.0001 times as slow" in second.stderr


def test_the_baseline_has_every_row() -> None:
    names = compare("--list").stdout.splitlines()

    assert list(json.loads((ROOT / "benchmarks/baseline.json").read_text())["rows"]) == names


@pytest.mark.parametrize(
    ("arguments", "said"),
    [((), "the folders of two checkouts"), (("a", "b"), "no packages/core/src/steppe"), (("--rows", "x"), "--list")],
)
def test_an_impossible_comparison_fails_with_a_reason(arguments: tuple[str, ...], said: str) -> None:
    done = compare(*arguments)

    assert done.returncode != 0
    assert said in done.stderr
