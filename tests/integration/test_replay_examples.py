"""The examples of DQN and SAC run, with their variants, and learn."""

from __future__ import annotations

import runpy
from typing import Any

import pytest
import torch

from steppe import ExplorationType, set_exploration_type
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


@pytest.mark.parametrize(("n", "prioritized"), [(1, False), (3, True)])
def test_sac_runs_in_a_short_form(n: int, prioritized: bool) -> None:
    curve = list(example("sac")["train"](1_200, 0, n=n, prioritized=prioritized, evaluate_every=600))
    assert curve
    assert all(-2000 <= mean_return <= 0 for _, mean_return in curve)


def test_dqn_plays_an_atari_game() -> None:
    pytest.importorskip("ale_py")
    pytest.importorskip("cv2")
    curve = list(example("dqn")["train"](1_280, 0, evaluate_every=10, name="gym:ALE/Qbert-v5"))
    assert len(curve) == 1
    assert curve[0][1] % 2.5 == 0, "a mean of ten returns, which are multiples of 25"


def test_losses_of_sac_sample_actions() -> None:
    """The losses need actions with noise, though only a collector sets the kind of exploration."""
    actor, observation = example("sac")["Actor"](3, 2, 1.0), torch.zeros(200, 3)
    action, log_prob = actor.sample(observation)
    assert action.std(0).min() > 0.1
    assert log_prob.std() > 0.1
    assert actor(observation).std(0).max() < 1e-6, "outside of a collector it acts without noise"
    with set_exploration_type(ExplorationType.RANDOM):
        assert actor(observation).std(0).min() > 0.1


def test_sac_runs_on_halfcheetah() -> None:
    curve = list(example("sac")["train"](1_100, 0, evaluate_every=1_100, name="gym:HalfCheetah-v5"))
    assert len(curve) == 1
    assert -1_000 < curve[0][1] < 1_000


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_dqn_and_sac_learn() -> None:
    assert any(mean_return >= 450 for _, mean_return in example("dqn")["train"](50_000, 0))
    assert any(mean_return >= -250 for _, mean_return in example("sac")["train"](12_000, 0))


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_sac_learns_to_run() -> None:
    curve = example("sac")["train"](20_000, 2, evaluate_every=2_500, name="gym:HalfCheetah-v5")
    assert any(mean_return >= 300 for _, mean_return in curve)
