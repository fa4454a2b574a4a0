"""The examples of requests run, draw their pictures, and learn."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import pytest
import torch

from tools.workspace import ROOT

pytestmark = pytest.mark.programs


def example(name: str) -> dict[str, Any]:
    return runpy.run_path(str(ROOT / "docs" / "examples" / f"{name}.py"))


def is_picture(file: Path) -> bool:
    return file.read_bytes().startswith(b"\x89PNG")


def test_reinforce_with_a_recurrent_agent_runs(tmp_path: Path) -> None:
    names = example("reinforce_recurrent")
    curve = names["train"](iterations=2, episodes=5, workers=0, seed=1)
    assert curve == names["train"](iterations=2, episodes=5, workers=0, seed=1), "a seed determines the training"
    # One mean, of eight greedy episodes of whole steps. A pole falls after 8 steps at the earliest.
    assert [mean * 8 for mean in curve] == [int(curve[0] * 8)]
    assert curve[0] >= 8
    names["plot"](curve, str(tmp_path / "curve.png"))
    assert is_picture(tmp_path / "curve.png")


def test_returns_to_go_end_with_each_row() -> None:
    rewards, mask = torch.tensor([[1.0, 2.0, 4.0], [3.0, 5.0, 5.0]]), torch.tensor([[True] * 3, [True, False, False]])
    g = 0.99
    expected = torch.tensor([[1 + 2 * g + 4 * g**2, 2 + 4 * g, 4], [3, 0, 0]])
    torch.testing.assert_close(example("reinforce_recurrent")["returns_to_go"](rewards, mask), expected)


def test_checkpoints_are_evaluated_as_a_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names = example("evaluation_table")
    checkpoints = names["imitated"](seed=2)
    table = names["evaluate"](checkpoints, episodes=2, seed=2)
    assert table.shape == (3, 4)
    assert table[2, 2] > table[0, 2], "the last checkpoint is better than the first one"
    names["show"](list(checkpoints), table)
    assert "Jupiter" in capsys.readouterr().out
    names["plot"](list(checkpoints), table, str(tmp_path / "table.png"))
    assert is_picture(tmp_path / "table.png")


def test_evolution_strategies_run(tmp_path: Path) -> None:
    names = example("evolution_strategies")
    curve = list(names["train"](frames=300, seed=3, population=6))
    frames, means = zip(*curve, strict=True)
    assert list(frames) == sorted(set(frames))
    assert frames[-1] >= 300
    # An iteration runs 12 episodes, whose rewards are 1 for each frame.
    assert frames[0] == round(12 * means[0])
    names["plot"](curve, str(tmp_path / "curve.png"))
    assert is_picture(tmp_path / "curve.png")


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_examples_of_requests_learn() -> None:
    assert max(mean for _, mean in example("evolution_strategies")["train"](60_000, seed=0)) > 100
    assert max(example("reinforce_recurrent")["train"](iterations=30, episodes=16, workers=0, seed=0)) > 80
