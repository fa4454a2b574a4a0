"""The examples of DQN and SAC run, with their variants, and learn."""

from __future__ import annotations

import runpy
from typing import Any

import pytest
import torch
from tensordict import TensorDict

from tools.workspace import ROOT

pytestmark = pytest.mark.programs

EXAMPLES = ROOT / "docs" / "examples"


def example(name: str) -> dict[str, Any]:
    return runpy.run_path(str(EXAMPLES / f"{name}.py"))


@pytest.mark.parametrize("prioritized", [False, True])
def test_dqn_runs_in_a_short_form(prioritized: bool) -> None:
    curve = list(example("dqn")["train"](1_536, 0, n=2, prioritized=prioritized, evaluate_every=4))
    assert curve
    assert all(1 <= mean_return <= 500 for _, mean_return in curve)


@pytest.mark.parametrize("prioritized", [False, True])
def test_sac_runs_in_a_short_form(prioritized: bool) -> None:
    curve = list(example("sac")["train"](1_200, 0, prioritized=prioritized, evaluate_every=12))
    assert curve
    assert all(-2000 <= mean_return <= 0 for _, mean_return in curve)


def test_returns_of_n_steps_end_with_episodes_and_batches() -> None:
    done = torch.tensor([0, 0, 1, 0, 0, 1, 0], dtype=torch.bool).unsqueeze(-1)
    terminated = torch.tensor([0, 0, 1, 0, 0, 0, 0], dtype=torch.bool).unsqueeze(-1)
    after = torch.arange(1.0, 8.0)
    following = {"reward": torch.ones(7, 1), "done": done, "terminated": terminated, "observation": after}
    batch = TensorDict({"observation": after - 1, "action": after, "next": TensorDict(following, [7])}, [7])
    result = example("dqn")["n_step"](batch, 3)

    g = 0.99
    one, two, three = 1.0, 1 + g, 1 + g + g**2
    assert torch.allclose(result["return"], torch.tensor([three, two, one, three, two, one, one]))
    assert result["after"].tolist() == [3, 3, 3, 6, 6, 6, 7]
    # 0 after a terminal step; after a truncated one, and at the end of the batch, the value counts.
    assert torch.allclose(result["discount"], torch.tensor([0, 0, 0, g**3, g**2, g, g]))


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_dqn_and_sac_learn() -> None:
    assert any(mean_return >= 450 for _, mean_return in example("dqn")["train"](50_000, 0))
    assert any(mean_return >= -250 for _, mean_return in example("sac")["train"](12_000, 0))
