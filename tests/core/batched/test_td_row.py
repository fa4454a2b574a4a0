"""Rows of environments that step on TensorDicts."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch
from tensordict import TensorDict

from steppe import EnvBase, ParallelEnv, SerialEnv, StepCounter, TransformedEnv
from steppe_testing import (
    MultiAgentCountingEnv,
    NestedCountingEnv,
    NestedResetEnv,
    assert_equal_data,
)
from tests.core.envs.pair import Pair, counts_of_pair

BOTH = pytest.mark.parametrize("batch", [SerialEnv, partial(ParallelEnv, num_processes=2)], ids=["serial", "parallel"])


@BOTH
@pytest.mark.parametrize("make", [NestedCountingEnv, NestedResetEnv, MultiAgentCountingEnv])
def test_agents_that_end_one_by_one_match_one_environment(batch: Any, make: Any) -> None:
    """A batch whose agents end one by one gives the data of a single environment."""
    alone = make()
    with batch(2, make) as env:
        root, other = env.reset(), alone.reset()
        for _ in range(12):
            action = alone.rand_action().get(("agents", "action"))
            root[("agents", "action")] = torch.stack([action, action])
            other[("agents", "action")] = action
            stepped, root = env.step_and_maybe_reset(root)
            expected, other = alone.step_and_maybe_reset(other)
            for row in (0, 1):
                assert_equal_data(stepped[row], expected)
                assert_equal_data(root[row], other)
        assert env.storage is not None


@BOTH
@pytest.mark.parametrize("make", [Pair, lambda: TransformedEnv(Pair())], ids=["alone", "transformed"])
def test_agents_of_a_row_writer_are_reset_alone_in_a_batch(batch: Any, make: Any) -> None:
    """A single environment writes rows; in a batch, whose masks may be for single agents, it steps on TensorDicts."""
    assert make().row_writer is not None
    with batch(2, make) as env:
        data = env.rollout(7, break_when_any_done=False)
        root = env.reset()
        for _ in range(4):
            root = env.maybe_reset(env.step_mdp(env.step(env.rand_action(root))))

    for row in data:
        assert counts_of_pair(row) == [[0, 1, 0, 1, 0, 1, 0], [0, 1, 2, 3, 0, 1, 2]]
        assert counts_of_pair(row["next"]) == [[1, 2, 1, 2, 1, 2, 1], [1, 2, 3, 4, 1, 2, 3]]
    assert counts_of_pair(root) == [[0, 0], [0, 0]]


@BOTH
def test_agents_that_a_transform_ends_are_reset_alone(batch: Any) -> None:
    def make() -> EnvBase:
        return NestedCountingEnv(6, spread=3)

    with batch(2, make) as base:
        env = TransformedEnv(base, StepCounter(max_steps=4))
        found = env.rollout(14, break_when_any_done=False, actions=_group_actions(14, 2))
    with batch(2, lambda: TransformedEnv(make(), StepCounter(max_steps=4))) as env:
        assert_equal_data(found, env.rollout(14, break_when_any_done=False, actions=_group_actions(14, 2)))


def _group_actions(steps: int, n: int) -> list[TensorDict]:
    env = NestedCountingEnv()
    action = env.full_action_spec.expand(n).zero()
    action["agents", "action"][..., 1] = 1
    return [action] * steps


@BOTH
def test_a_mask_of_agents_resets_those_agents(batch: Any) -> None:
    with batch(2, NestedCountingEnv) as env:
        root = env.step_mdp(env.rand_step(env.reset()))
        root["agents", "_reset"] = torch.tensor([[True, False], [False, False]]).unsqueeze(-1)
        root = env.reset(root)
        assert root["agents", "observation"].flatten().tolist() == [0, 1, 1, 1]
        after = env.rand_step(root)

    assert after["next", "agents", "observation"].flatten().tolist() == [1, 2, 2, 2]


@BOTH
def test_a_mask_at_the_root_decides_for_the_agents(batch: Any) -> None:
    with batch(2, NestedResetEnv) as env:
        root = env.step_mdp(env.rand_step(env.reset()))
        root["agents", "_reset"] = torch.tensor([[True, False], [True, False]]).unsqueeze(-1)
        root["_reset"] = torch.tensor([[True], [False]])

        assert env.reset(root)["agents", "observation"].flatten().tolist() == [0, 0, 1, 1]
