"""Transforms around a batch with partial steps and resets."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch

from steppe import SerialEnv, TransformedEnv
from steppe.specs import Bounded, OneHot, Unbounded
from steppe.transforms import (
    ActionDiscretizer,
    ActionScaling,
    CatFrames,
    CatTensors,
    Compose,
    ConditionalPolicySwitch,
    DiscreteActionProjection,
    FrameSkipTransform,
    NoopResetEnv,
    ObservationNorm,
    RandomTruncationTransform,
    RewardClipping,
    RewardScaling,
    RewardSum,
    StepCounter,
    TargetReturn,
    TensorDictPrimer,
    UnsqueezeTransform,
    VecNorm,
    gSDENoise,
)
from steppe_testing import ArrayCountingEnv, CountingEnv

N = 4


class Bounds(ArrayCountingEnv):
    """Takes an action within bounds."""

    def __init__(self, high: float = 2.0) -> None:
        super().__init__(50)
        self.action_spec = Bounded(-high, high, (1,))


class Choices(ArrayCountingEnv):
    """Takes one of two actions."""

    def __init__(self) -> None:
        super().__init__(50)
        self.action_spec = OneHot(2)


def hidden(**kwargs: Any) -> TensorDictPrimer:
    return TensorDictPrimer({"h": Unbounded((2,))}, **kwargs)


def first_action(td: Any) -> Any:
    return td.set("action", torch.eye(3, dtype=torch.bool)[torch.zeros(td.batch_size, dtype=torch.int64)])


jitter = ActionDiscretizer.SamplingStrategy.RANDOM
CASES: dict[str, tuple[Any, Any]] = {
    "cut at random": (
        CountingEnv,
        lambda: Compose(StepCounter(), RandomTruncationTransform(2, 3, prob=1.0, first_episode_prob=1.0)),
    ),
    "drawn memory": (ArrayCountingEnv, partial(hidden, random=True)),
    "noise": (ArrayCountingEnv, partial(gSDENoise, 2, 3)),
    "projected": (Choices, partial(DiscreteActionProjection, 2, 6)),
    "jitter": (Bounds, partial(ActionDiscretizer, 3, sampling=jitter)),
    "unequal bounds": ([partial(Bounds, high) for high in (1.0, 2.0, 3.0, 4.0)], partial(ActionDiscretizer, 3)),
    "scaled": (Bounds, ActionScaling),
    "numbers of each row": (ArrayCountingEnv, lambda: ObservationNorm(torch.arange(4.0)[:, None], torch.ones(4, 1))),
    "rewards of each row": (ArrayCountingEnv, lambda: RewardScaling(torch.arange(4.0)[:, None], torch.ones(4, 1))),
    "several steps": (CountingEnv, partial(FrameSkipTransform, 2)),
    "actions at a reset": (CountingEnv, partial(NoopResetEnv, 3)),
    "a policy in turn": (
        ArrayCountingEnv,
        lambda: ConditionalPolicySwitch(first_action, lambda td: td["observation"] > 30),
    ),
    "counts and sums": (ArrayCountingEnv, lambda: Compose(StepCounter(9), RewardSum(), TargetReturn(8.0))),
    "frames": (ArrayCountingEnv, partial(CatFrames, 3, -1, ["observation"])),
    "statistics": (ArrayCountingEnv, VecNorm),
    "reshaped": (ArrayCountingEnv, partial(UnsqueezeTransform, -1, in_keys=["observation"])),
    "put together": (ArrayCountingEnv, lambda: Compose(RewardSum(), CatTensors(["observation", "episode_reward"]))),
    "clipped": (ArrayCountingEnv, partial(RewardClipping, -0.125, 0.125)),
}


def made(base: Any, transform: Any) -> TransformedEnv:
    fns = base if isinstance(base, list) else partial(base, 50) if base in (ArrayCountingEnv, CountingEnv) else base
    env = TransformedEnv(SerialEnv(N, fns), transform())
    env.set_seed(11)
    return env


@pytest.mark.parametrize("name", CASES)
def test_rows_by_number_are_the_rows_of_a_mask(name):
    by_number, by_mask = made(*CASES[name]), made(*CASES[name])
    first, second = by_number.reset(), by_mask.reset()
    actions = by_number.rand_action(first.clone())["action"]
    rows = [3, 1]
    mask = torch.tensor([False, True, False, True])

    some = by_number.step_at(first[rows].set("action", actions[rows]), rows)
    second.update({"action": actions, "_step": mask})
    left = second[~mask].clone()
    every = by_mask.step_mdp(by_mask.step(second))
    found = by_number.step_mdp(some)
    assert all(torch.equal(every[~mask][key], left[key]) for key in by_mask.observation_keys)

    assert set(found.keys()) <= set(every.keys())
    assert all(torch.equal(found[key], every[rows][key]) for key in found.keys(True, True) if key != "action")

    fresh = by_number.reset_at(found.exclude("action"), rows)
    left = every[~mask].clone()
    every = by_mask.reset(every.set("_reset", mask.unsqueeze(-1)))
    assert all(torch.equal(every[~mask][key], left[key]) for key in by_mask.observation_keys)
    assert all(torch.equal(fresh[key], every[rows][key]) for key in fresh.keys(True, True))
    for env in (by_number, by_mask):
        env.close()


def test_a_reset_row_counts_its_own_first_episode():
    """The first episode of a row is cut anywhere, later ones where the transform says: rows are not mixed up."""
    transform = RandomTruncationTransform(7, 7, prob=1.0, first_episode_prob=1.0)
    env = TransformedEnv(SerialEnv(3, partial(ArrayCountingEnv, 50)), Compose(StepCounter(), transform))
    env.set_seed(0)
    env.reset()

    env.reset_at(None, [2])
    env.reset_at(None, [2])
    assert transform._begun == [1, 1, 3]
