"""StepCounter and InitTracker."""

from __future__ import annotations

import pytest
import torch

from steppe.errors import ArgumentError, SpecError
from steppe.specs import Binary, Bounded, Composite
from steppe.transforms import Compose, InitTracker, StepCounter, TransformedEnv
from steppe_testing import ArrayCountingEnv, CountingEnv, NestedCountingEnv
from tests.core.transforms.bases import BASES

EACH = pytest.mark.parametrize("base", BASES.values(), ids=BASES.keys())


def first(data, key):
    """One row over time."""
    value = data[key]
    return (value[0] if value.ndim > 2 else value).squeeze(-1).tolist()


@EACH
def test_steps_are_counted_from_each_reset(base):
    data = TransformedEnv(base(3), StepCounter()).rollout(7, break_when_any_done=False)

    assert first(data, "step_count") == [0, 1, 2, 0, 1, 2, 0]
    assert first(data, ("next", "step_count")) == [1, 2, 3, 1, 2, 3, 1]
    assert data["step_count"].dtype is torch.int64


@EACH
def test_a_limit_truncates(base):
    data = TransformedEnv(base(5), StepCounter(max_steps=2)).rollout(5, break_when_any_done=False)

    assert first(data, ("next", "truncated")) == [False, True, False, True, False]
    assert first(data, ("next", "done")) == [False, True, False, True, False]
    assert not data["next", "terminated"].any()
    assert first(data, "step_count") == [0, 1, 0, 1, 0]
    assert first(data, "observation") == [0, 1, 0, 1, 0]


@EACH
def test_a_terminated_last_step_is_truncated_too(base):
    data = TransformedEnv(base(3), StepCounter(max_steps=3)).rollout(5, break_when_any_done=False)

    assert first(data, ("next", "terminated")) == [False, False, True, False, False]
    assert first(data, ("next", "truncated")) == [False, False, True, False, False]


def test_without_a_limit_it_does_not_end_episodes():
    assert not StepCounter().writes_done
    assert StepCounter(5).writes_done


@pytest.mark.parametrize("base", [CountingEnv, ArrayCountingEnv])
def test_truncated_key_and_update_done_choose_the_entry(base):
    data = TransformedEnv(base(5), StepCounter(2, truncated_key="done", step_count_key="t")).rollout(5)
    assert data["next", "t"].squeeze(-1).tolist() == [1, 2]
    assert not data["next", "truncated"].any()

    data = TransformedEnv(base(5), StepCounter(2, update_done=False)).rollout(9)
    assert data["next", "truncated"].squeeze(-1).tolist() == [False, True, True, True, True]
    assert data["next", "done"].squeeze(-1).tolist() == [False, False, False, False, True]


@EACH
def test_the_limit_may_use_a_new_entry(base):
    env = TransformedEnv(base(9), StepCounter(2, truncated_key="late"))

    env.check_env_specs()
    data = env.rollout(4, break_when_any_done=False)
    assert first(data, ("next", "late")) == first(data, ("next", "done")) == [False, True, False, True]
    assert first(data, "late") == [False] * 4
    assert not data["next", "truncated"].any()


def test_two_trackers_are_as_good_as_one():
    env = TransformedEnv(ArrayCountingEnv(3), Compose(InitTracker(), InitTracker()))

    env.check_env_specs()
    assert first(env.rollout(4, break_when_any_done=False), "is_init") == [True, False, False, True]


def leave_out_truncated(env):
    flag = Binary(shape=(*env.batch_size, 1), dtype=torch.bool)
    env.full_done_spec = Composite(done=flag, terminated=flag, shape=env.batch_size)
    return env


@pytest.mark.parametrize("name", ["tensordict", "arrays", "batch"])
def test_an_environment_without_truncated_entries_gets_them(name):
    env = TransformedEnv(leave_out_truncated(BASES[name](5)), StepCounter(2))

    env.check_env_specs()
    assert env.done_keys == ["done", "terminated", "truncated"]
    assert first(env.rollout(4, break_when_any_done=False), ("next", "truncated")) == [False, True, False, True]


def test_the_count_is_an_observation_and_a_state():
    env = TransformedEnv(CountingEnv(3, batch_size=(2,)), StepCounter(4))

    assert isinstance(env.observation_spec["step_count"], Bounded)
    assert env.state_keys == ["step_count"]
    assert env.observation_spec["step_count"].shape == (2, 1)


@pytest.mark.parametrize("base", [CountingEnv, ArrayCountingEnv])
def test_the_count_continues_from_the_data(base):
    env = TransformedEnv(base(50), StepCounter(8))
    td = env.reset()
    td["step_count"] = torch.tensor([6])
    env.rand_step(td)
    assert td["next", "step_count"].item() == 7

    root = env.step_mdp(td)
    data = env.rollout(9, tensordict=root, auto_reset=False)
    assert data["next", "step_count"].squeeze(-1).tolist() == [8]


@pytest.mark.parametrize("base", [CountingEnv, ArrayCountingEnv])
def test_a_missing_count_says_what_to_step(base):
    env = TransformedEnv(base(3), StepCounter())
    with pytest.raises(KeyError, match="no 'step_count' in the data given to step. Step what reset"):  # noqa: RUF043
        env.rand_step()


def test_arguments_are_checked():
    assert StepCounter(2.0).max_steps == 2
    for wrong in (0, -1, 2.5, "3", True):
        with pytest.raises(ArgumentError, match="max_steps is a whole number >= 1 or None"):
            StepCounter(wrong)
    with pytest.raises(SpecError, match="step_count_key is one name"):
        StepCounter(step_count_key=("a", "b"))
    with pytest.raises(SpecError, match="init_key is one name"):
        InitTracker(init_key=("a", "b"))


@EACH
def test_the_first_step_of_an_episode_is_marked(base):
    data = TransformedEnv(base(3), InitTracker()).rollout(7, break_when_any_done=False)

    assert first(data, "is_init") == [True, False, False, True, False, False, True]
    assert not data["next", "is_init"].any()
    assert data["is_init"].dtype is torch.bool


def test_a_mark_does_not_replace_an_entry():
    with pytest.raises(SpecError, match="has an entry 'observation' already"):
        TransformedEnv(CountingEnv(3), InitTracker("observation")).reset()


def test_limits_hold_for_each_agent():
    env = TransformedEnv(NestedCountingEnv(3, spread=3), Compose(StepCounter(4)))

    data = env.rollout(6, break_when_any_done=False)

    assert data["agents", "step_count"][..., 0].T.tolist() == [[0, 1, 2, 0, 1, 2], [0, 1, 2, 3, 0, 1]]
    assert data["next", "agents", "truncated"][..., 0].any(0).tolist() == [False, True]


def test_a_shared_constant_is_not_handed_out():
    env = TransformedEnv(CountingEnv(3), Compose(StepCounter(), InitTracker()))
    first_root, second_root = env.reset(), env.reset()
    first_root["is_init"].fill_(False)
    first_root["step_count"].fill_(9)

    assert second_root["is_init"].item() is True
    assert env.reset()["step_count"].item() == 0
