"""The example of PPO runs, and learns."""

from __future__ import annotations

import runpy

import pytest

from tools.workspace import ROOT

pytestmark = pytest.mark.programs

EXAMPLE = str(ROOT / "docs" / "examples" / "ppo.py")


def test_the_example_runs_in_a_short_form() -> None:
    curve = list(runpy.run_path(EXAMPLE)["train"](5_120, 0))
    assert [frames for frames, _, _ in curve] == [2_560, 5_120]
    assert all(1 <= found <= 500 for _, _, found in curve)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_the_example_learns_cartpole_within_100000_frames() -> None:
    train = runpy.run_path(EXAMPLE)["train"]
    # That the median of three seeds reaches it is that two of them do; a run ends where it has.
    reached = [any(found >= 450 for _, _, found in train(100_000, seed)) for seed in range(3)]
    assert sum(reached) >= 2
