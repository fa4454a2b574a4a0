"""Environments of PettingZoo write rows of arrays, and give the same data as on TensorDicts."""

from __future__ import annotations

import numpy as np
import pytest
import torch

pytest.importorskip("pettingzoo")

from steppe import ParallelEnv, RewardSum, SerialEnv, StepCounter, TransformedEnv
from steppe.collectors import SyncDataCollector
from steppe.errors import ActionError, NotSupported, WorkerError
from steppe_pettingzoo import PettingZooWrapper
from steppe_testing import assert_equal_data
from tests.envs.pettingzoo.ending import Choosy, Leaving, leaving_in_turns

pytestmark = [pytest.mark.library, pytest.mark.matrix]


def until_all_end():
    return PettingZooWrapper(Leaving(4), use_mask=True, done_on_any=False)


CASES = {
    "all at once": lambda: PettingZooWrapper(Leaving(2), return_state=True),
    "until all end": until_all_end,
    "in turns": lambda: PettingZooWrapper(leaving_in_turns()),
    "one-hot": lambda: PettingZooWrapper(Leaving(3), categorical_actions=False),
    "masked": lambda: PettingZooWrapper(Choosy(1)),
}


def on_tensordicts(make):
    env = make()
    env._step = env._step
    assert env.row_writer is None
    return env


@pytest.mark.parametrize("make", CASES.values(), ids=CASES)
def test_rows_and_tensordicts_give_equal_data(make):
    env, slow = make(), on_tensordicts(make)
    assert env.no_row_writer_reason is None
    env.set_seed(4), slow.set_seed(4)
    first = env.rollout(23, break_when_any_done=False)

    second = slow.rollout(23, actions=list(first.select(*env.action_keys).unbind(0)), break_when_any_done=False)

    assert first["next", "done"].any()
    assert_equal_data(second, first)


@pytest.mark.parametrize("make", CASES.values(), ids=CASES)
def test_transforms_of_groups_give_equal_data_on_rows(make):
    env, slow = (TransformedEnv(base) for base in (make(), on_tensordicts(make)))
    for each in (env, slow):
        each.append_transform(StepCounter(3)).append_transform(RewardSum())
        each.set_seed(1)
    assert env.no_row_writer_reason is None
    first = env.rollout(17, break_when_any_done=False)

    second = slow.rollout(17, actions=list(first.select(*env.action_keys).unbind(0)), break_when_any_done=False)

    assert_equal_data(second, first)


@pytest.mark.parametrize("kind", [SerialEnv, ParallelEnv])
def test_a_batch_and_its_collector_equal_the_environments(kind):
    batch = kind(2, until_all_end)
    batch.set_seed(0)
    data = batch.rollout(13, break_when_any_done=False)
    collector = SyncDataCollector(batch, None, frames_per_batch=26, total_frames=26)
    collected = next(iter(collector))

    for rows in (data, collected):
        for row in range(2):
            actions = list(rows[row].select(*batch.action_keys).unbind(0))
            single = on_tensordicts(until_all_end).rollout(13, actions=actions, break_when_any_done=False)
            assert_equal_data(rows[row].select(*single.keys(True, True)), single)
    collector.shutdown()


@pytest.mark.parametrize("kind", [SerialEnv, ParallelEnv])
def test_some_agents_of_a_row_cannot_be_reset(kind):
    batch = kind(2, until_all_end)
    root = batch.reset()
    root["walker", "_reset"] = torch.tensor([[True, True, True, True], [True, False, True, True]]).unsqueeze(-1)

    with pytest.raises((NotSupported, WorkerError), match="reset all agents"):
        batch.reset(root)
    batch.close()


def test_actions_of_ended_agents_are_not_read_on_rows():
    env = until_all_end()
    actions = [{"walker": {"action": torch.tensor([1 if t < 2 else -5, 1, 2, 3])}} for t in range(5)]
    given = [env.full_action_spec.zero().update(step) for step in actions]

    data = env.rollout(5, actions=given)

    assert data["next", "walker", "done"][:, 0].squeeze(-1).tolist() == [False, True, True, True, True]
    with pytest.raises(ActionError, match="walker_0"):
        env.rollout(5, actions=[step.clone().update({"walker": {"action": torch.full((4,), 9)}}) for step in given])


def test_infos_that_are_missing_in_a_step_are_zero():
    class Forgetful(Leaving):
        def step(self, actions):
            *values, infos = super().step(actions)
            return *values, {agent: {} for agent in infos}

    data = PettingZooWrapper(Forgetful()).rollout(2)

    assert data["walker", "info", "lives"].tolist() == [[3, 3, 3], [0, 0, 0]]


def test_a_value_of_another_shape_names_the_agent_on_rows():
    class Growing(Leaving):
        def step(self, actions):
            observations, *rest = super().step(actions)
            return {**observations, "walker_1": np.zeros(5, np.float32)}, *rest

    with pytest.raises(Exception, match=r"agent 'walker_1': .*\(2,\)"):
        PettingZooWrapper(Growing()).rollout(2)
