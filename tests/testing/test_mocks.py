"""The mock environments do what their names say."""

from __future__ import annotations

import pickle
import time

import pytest
import torch

from steppe.errors import SpecError
from steppe.specs import Unbounded
from steppe_testing import (
    ACTION_KINDS,
    ArrayCountingEnv,
    CountingEnv,
    DataEnv,
    DoNothingEnv,
    FailingEnv,
    HangingEnv,
    HeterogeneousCountingEnv,
    MetadataEnv,
    MultiAgentCountingEnv,
    SlowEnv,
    TextCountingEnv,
    action_leaf,
    action_number,
    assert_equal_data,
)


@pytest.mark.parametrize(("in_", "at", "steps"), [("reset", 2, 3), ("step", 4, 3)])
def test_a_failing_environment_fails_when_told(in_, at, steps):
    env = FailingEnv(at=at, in_=in_)
    env.rollout(steps)

    with pytest.raises(RuntimeError, match=f"FailingEnv failed in {in_} {at}"):
        env.rollout(steps + 2)


def test_a_failing_environment_fails_at_once_or_at_an_attribute():
    with pytest.raises(KeyError, match="init"):
        FailingEnv(in_="init", error=KeyError)

    env = FailingEnv(in_="attribute")
    with pytest.raises(RuntimeError, match="attribute"):
        env.broken  # noqa: B018
    assert FailingEnv().broken == "not broken"


@pytest.mark.parametrize("busy", [True, False])
def test_a_slow_environment_takes_its_time(busy):
    env = SlowEnv(seconds=0.01, reset_seconds=0, busy=busy)
    begin = time.perf_counter()
    env.rollout(3)

    assert time.perf_counter() - begin >= 0.03


def test_a_hanging_environment_gives_up_in_the_end():
    with pytest.raises(TimeoutError, match="gave up"):
        HangingEnv(at=2, seconds=0.01).rollout(5)


@pytest.mark.parametrize("kind", ACTION_KINDS)
def test_arrays_and_tensors_count_alike(kind):
    tensors, arrays = CountingEnv(3, action=kind), ArrayCountingEnv(3, action=kind)
    for env in (tensors, arrays):
        env.set_seed(4)

    assert_equal_data(arrays.rollout(7, break_when_any_done=False), tensors.rollout(7, break_when_any_done=False))


def test_an_unknown_kind_of_action_lists_those_there_are():
    with pytest.raises(SpecError, match="one_hot, categorical"):
        action_leaf("joystick")


def test_the_number_of_an_action_has_one_last_dimension():
    for kind in ACTION_KINDS:
        leaf = action_leaf(kind, (4,))
        assert action_number(kind, leaf.rand()).shape == (4, 1)


def test_agents_end_one_after_the_other():
    data = MultiAgentCountingEnv(2).rollout(10)

    assert data["next", "agents", "done"].squeeze(-1).sum(0).tolist() == [3, 2, 1]
    assert data.batch_size == (4,)


def test_agents_that_differ_have_entries_of_their_own():
    agents = HeterogeneousCountingEnv().reset()["agents"]

    assert [set(agent.keys()) for agent in agents.unbind(0)] == [{"observation", f"own_{i}"} for i in range(3)]


def test_text_and_objects_come_in_the_shape_of_the_batch():
    assert TextCountingEnv(batch_size=(2,)).reset()["text"] == ["0", "0"]
    assert MetadataEnv(metadata=[1]).rollout(2)[1]["next", "metadata"] == [1]


def test_the_least_environment_has_nothing_to_see():
    data = DoNothingEnv().rollout(3)

    assert not data["next", "done"].any()
    assert data["next", "reward"].sum() == 0


def test_random_data_follows_its_specs_and_seed():
    env = DataEnv({("a", "b"): Unbounded((2,), dtype=torch.float64)}, max_steps=3)
    env.check_env_specs()
    env.set_seed(1)
    first = env.rollout(9)
    env.set_seed(1)

    assert_equal_data(env.rollout(9), first)
    assert first.batch_size == (3,)
    assert pickle.loads(pickle.dumps(env)).rollout(9).batch_size == (3,)
