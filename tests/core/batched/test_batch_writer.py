"""The row writer of a batch: actions, results and devices of single steps."""

from __future__ import annotations

import copy
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch

from steppe import ArrayEnv, Composite, ParallelEnv, SerialEnv, Unbounded
from steppe.errors import ActionError
from steppe_testing import ACTION_KINDS, ArrayCountingEnv, assert_equal_data

BOTH = pytest.mark.parametrize("batch", [SerialEnv, partial(ParallelEnv, num_processes=2)], ids=["serial", "parallel"])


def _counting() -> ArrayCountingEnv:
    return ArrayCountingEnv(max_steps=3)


class _Noting(ArrayCountingEnv):
    """An environment that records its actions."""

    def step_into(self, action: Any, out: Any) -> tuple[bool, bool]:
        vars(self).setdefault("given", []).append(copy.copy(action))
        return super().step_into(action, out)


class _Watched(ArrayEnv):
    """Counts by itself."""

    def __init__(self) -> None:
        super().__init__()
        self.observation_spec = Unbounded((1,))
        self.full_action_spec = Composite()
        self.reward_spec = Unbounded((1,))

    def reset_into(self, out: Any, seed: Any, env_info: Any) -> None:
        self.count = 0
        out["observation"][0] = 0

    def step_into(self, action: Any, out: Any) -> tuple[bool, bool]:
        self.count += 1
        out["observation"][0], out["reward"][0] = self.count, 1
        return False, False


@pytest.mark.parametrize("kind", ACTION_KINDS)
def test_steps_decode_actions_as_a_rollout_does(kind: str) -> None:
    envs, alone = [_Noting(action=kind, max_steps=50) for _ in range(2)], _Noting(action=kind, max_steps=50)
    actions = alone.full_action_spec.rand((6, 2))
    with SerialEnv(2, [lambda env=env: env for env in envs]) as batch:
        root = batch.reset()
        for step in actions.unbind(0):
            root = batch.step_and_maybe_reset(root.update(step))[1]
    row = iter(actions[:, 1].unbind(0))
    alone.rollout(6, policy=lambda td: td.update(next(row)))
    assert list(map(type, envs[1].given)) == list(map(type, alone.given))
    np.testing.assert_equal(envs[1].given, alone.given)


@BOTH
def test_environments_without_actions_step_on_rows(batch: Any) -> None:
    with batch(2, _Watched) as env:
        root = env.reset()
        for _ in range(5):
            root = env.step_and_maybe_reset(root)[1]
    assert root["observation"].tolist() == [[5.0], [5.0]]


@BOTH
def test_a_wrong_action_after_valid_steps_is_refused(batch: Any) -> None:
    """The fast path refuses a wrong action, and the batch stays usable."""
    with batch(2, "gym:CartPole-v1") as env:
        root = env.reset()
        for _ in range(3):
            root = env.step_and_maybe_reset(env.rand_action(root))[1]
        root["action"] = torch.ones(2, 2, dtype=torch.int64)
        with pytest.raises(ActionError):
            env.step_and_maybe_reset(root)
        assert "next" not in root
        env.step_and_maybe_reset(env.rand_action(root))


@BOTH
def test_returned_steps_never_change(batch: Any) -> None:
    with batch(2, _counting) as env:
        root = env.reset()
        for _ in range(3):
            root = env.step_and_maybe_reset(env.rand_action(root))[1]
        data, after = env.step_and_maybe_reset(env.rand_action(root))
        held = data.clone(), after.clone()
        root = after.copy()
        for _ in range(5):
            root = env.step_and_maybe_reset(env.rand_action(root))[1]
        assert_equal_data(data, held[0])
        assert_equal_data(after, held[1])


def test_moving_a_batch_after_steps_moves_its_data() -> None:
    """If a batch moves to another device after usual steps, its data comes out there."""
    with SerialEnv(2, _counting) as env:
        root = env.reset()
        for _ in range(3):
            root = env.step_and_maybe_reset(env.rand_action(root))[1]
        env.to("cpu")
        root = env.step_and_maybe_reset(env.rand_action(env.reset()))[1]
        root = env.step_and_maybe_reset(env.rand_action(root))[1]
        assert root.device == torch.device("cpu")
