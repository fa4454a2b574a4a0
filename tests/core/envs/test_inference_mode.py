"""Environments that are used under inference mode first, as evaluation does, go on in any mode."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch

from steppe import Compose, EnvBase, RewardSum, SerialEnv, StepCounter, TransformedEnv
from steppe_testing import ArrayCountingEnv, CountingEnv


def counted(make: Callable[[], EnvBase]) -> EnvBase:
    return TransformedEnv(make(), Compose(StepCounter(), RewardSum()))


def batched(make: Callable[[], EnvBase]) -> EnvBase:
    return SerialEnv(2, make)


def steps(env: Any) -> list[torch.Tensor]:
    """Return seven steps of a loop and of a rollout, from new episodes."""
    seen, root = [], env.reset()
    for _ in range(7):
        td, root = env.step_and_maybe_reset(env.rand_action(root))
        seen.append(td["next", "observation"].clone())
    data = env.rollout(7, break_when_any_done=False)
    return [*seen, data["next", "observation"].clone()]


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(partial(counted, ArrayCountingEnv), id="entries that are carried"),
        pytest.param(partial(counted, CountingEnv), id="on TensorDicts"),
        pytest.param(partial(batched, CountingEnv), id="a batch on TensorDicts"),
        pytest.param(partial(batched, partial(counted, ArrayCountingEnv)), id="inside a batch"),
        pytest.param(partial(counted, partial(batched, ArrayCountingEnv)), id="around a batch"),
    ],
)
def test_inference_mode_may_begin_and_end_between_steps(make: Callable[[], Any]) -> None:
    """An environment stepped under inference mode can be stepped outside of it."""
    env, other = make(), make()
    expected = steps(other)

    with torch.inference_mode():
        found = [steps(env)]
    found.append(steps(env))
    with torch.inference_mode():
        found.append(steps(env))

    for one in found:
        torch.testing.assert_close(one, expected)
    env.close()
    other.close()
