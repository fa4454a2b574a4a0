"""Start and end of a rollout, on both code paths."""

from __future__ import annotations

import threading

import pytest
import torch

from steppe.collectors import Collector
from steppe.envs import step_mdp
from steppe.errors import ArgumentError, SpecError, StateError
from steppe.specs import Binary, Composite
from steppe.transforms import StepCounter, TransformedEnv
from steppe_testing import ArrayCountingEnv, CountingEnv, DoNothingEnv, MultiKeyCountingEnv
from tests.core.envs.counting import BOTH, counts, ones
from tests.core.envs.pair import Pair, counts_of_pair
from tests.limits import AT_ONCE


@BOTH
def test_a_rollout_ends_with_the_episode(make):
    data = make(3).rollout(10)

    assert data.batch_size == (3,)
    assert counts(data) == [0, 1, 2]
    assert counts(data["next"]) == [1, 2, 3]
    assert data["next", "done"].squeeze(-1).tolist() == [False, False, True]
    assert data.names == ["time"]


@BOTH
def test_break_when_any_done_false_continues_after_an_end(make):
    data = make(3).rollout(7, break_when_any_done=False)

    assert counts(data) == [0, 1, 2, 0, 1, 2, 0]
    assert counts(data["next"]) == [1, 2, 3, 1, 2, 3, 1]
    assert not data["done"].any()


@BOTH
def test_a_second_rollout_begins_with_a_reset(make):
    env = make(10)
    env.rollout(4)

    assert counts(env.rollout(2)) == [0, 1]


@BOTH
def test_a_rollout_continues_from_the_end_of_another(make):
    env = make(10)
    first = env.rollout(4)
    second = env.rollout(3, auto_reset=False, tensordict=step_mdp(first[-1]))

    assert counts(second) == [4, 5, 6]


@BOTH
def test_ended_rows_of_given_data_are_reset(make):
    env = make(3)
    first = env.rollout(10)
    second = env.rollout(10, auto_reset=False, tensordict=step_mdp(first[-1]))

    assert counts(second) == [0, 1, 2]


def test_auto_reset_false_needs_data():
    with pytest.raises(TypeError, match="needs tensordict="):
        CountingEnv().rollout(3, auto_reset=False)


@pytest.mark.parametrize("steps", [0, -1, 2.5, True])
def test_the_length_is_a_whole_number_from_one_on(steps):
    with pytest.raises(ArgumentError, match="max_steps"):
        CountingEnv().rollout(steps)


@BOTH
def test_both_break_arguments_together_are_refused(make):
    with pytest.raises(TypeError, match="cannot both be True"):
        make().rollout(3, break_when_any_done=True, break_when_all_done=True)


class Staggered(CountingEnv):
    """Rows end after 2, 3 and 4 steps."""

    def __init__(self, **kwargs):
        super().__init__(batch_size=(3,), **kwargs)
        self.max_steps = torch.tensor([[2], [3], [4]])


def test_a_batch_stops_when_any_row_has_ended():
    assert Staggered().rollout(10).batch_size == (3, 2)


def test_a_batch_stops_when_all_rows_have_ended():
    env = Staggered()
    data = env.rollout(10, break_when_all_done=True)

    assert data.batch_size == (3, 4)
    assert counts(data["next"]) == [[1, 2, 2, 2], [1, 2, 3, 3], [1, 2, 3, 4]]
    assert data["next", "done"].squeeze(-1).tolist() == [[0, 1, 1, 1], [0, 0, 1, 1], [0, 0, 0, 1]]
    assert env.count.squeeze(-1).tolist() == [2, 3, 4]


def test_a_batch_resets_each_ended_row_alone():
    data = Staggered().rollout(6, break_when_any_done=False)

    assert counts(data) == [[0, 1, 0, 1, 0, 1], [0, 1, 2, 0, 1, 2], [0, 1, 2, 3, 0, 1]]


def test_without_root_done_all_groups_must_end():
    data = MultiKeyCountingEnv({"left": 2, "right": 4}).rollout(10, break_when_all_done=True)

    assert data.batch_size == (4,)


def test_on_rows_each_agent_begins_again_by_itself():
    env = Pair()
    assert env.no_row_writer_reason is None
    data = env.rollout(7, break_when_any_done=False)

    assert counts_of_pair(data) == [[0, 1, 0, 1, 0, 1, 0], [0, 1, 2, 3, 0, 1, 2]]
    assert counts_of_pair(data["next"]) == [[1, 2, 1, 2, 1, 2, 1], [1, 2, 3, 4, 1, 2, 3]]
    assert not data["left", "done"].any()
    assert data["next", "right", "done"].flatten().tolist() == [False, False, False, True, False, False, False]


def test_on_rows_a_rollout_ends_with_the_first_agent():
    env = Pair()

    assert counts_of_pair(env.rollout(7)) == [[0, 1], [0, 1]]
    assert counts_of_pair(env.rollout(7)) == [[0, 1], [0, 1]]


def test_on_rows_all_agents_must_end():
    assert Pair().rollout(7, break_when_all_done=True).batch_size == (4,)


def test_single_steps_on_rows_reset_agents_that_ended():
    env = Pair()
    root = env.reset()
    for _ in range(2):
        step, root = env.step_and_maybe_reset(env.rand_action(root))

    assert step["next", "left", "done"].all()
    assert counts_of_pair(root) == [[0.0], [2.0]]
    assert not root["left", "done"].any()


def test_a_collector_on_rows_resets_agents_that_ended():
    collector = Collector(Pair(), None, frames_per_batch=3, total_frames=6)
    data = torch.cat([batch.clone() for batch in collector])

    assert counts_of_pair(data) == [[0, 1, 0, 1, 0, 1], [0, 1, 2, 3, 0, 1]]
    assert data["collector", "traj_ids"].tolist() == [0, 0, 1, 1, 2, 2]


def test_an_environment_without_an_end_runs_to_max_steps():
    assert DoNothingEnv(batch_size=(2,)).rollout(6).batch_size == (2, 6)


@BOTH
@pytest.mark.parametrize("break_any", [True, False])
def test_the_last_step_can_be_marked_as_truncated(make, break_any):
    data = make(10).rollout(4, set_truncated=True, break_when_any_done=break_any)

    assert data["next", "truncated"].squeeze(-1).tolist() == [False] * 3 + [True]
    assert data["next", "done"].squeeze(-1).tolist() == [False] * 3 + [True]
    assert not data["next", "terminated"].any()
    assert not data["truncated"].any()


def test_marking_needs_a_truncated_entry():
    env = CountingEnv()
    env.full_done_spec = Composite(done=Binary(1, dtype=torch.bool))
    with pytest.raises(SpecError, match="add_truncated_keys"):
        env.rollout(2, set_truncated=True)

    assert env.add_truncated_keys() is env
    assert env.rollout(2, set_truncated=True)["next", "truncated"][-1].item()


def test_truncated_keys_are_added_at_each_level():
    env = MultiKeyCountingEnv()
    leaf = Binary(1, dtype=torch.bool)
    env.full_done_spec = Composite({("left", "done"): leaf, ("right", "done"): leaf})
    env.add_truncated_keys()

    assert ("left", "truncated") in env.done_keys
    assert ("right", "truncated") in env.done_keys
    env.check_env_specs()


def test_later_rollouts_equal_a_new_environments():
    again = ArrayCountingEnv(3)
    kept = [again.rollout(4, break_when_any_done=False), again.rollout(2), again.rollout(5, break_when_any_done=False)]

    for data, steps in zip(kept, (4, 2, 5), strict=True):
        new = ArrayCountingEnv(3).rollout(steps, actions=data["action"], break_when_any_done=False)
        assert (data == new).all()


def test_a_failed_rollout_does_not_change_the_next_one():
    env = ArrayCountingEnv(5)

    def fails(td):
        if td["observation"].item() == 2:
            raise ArithmeticError("the policy")
        return ones(td)

    with pytest.raises(ArithmeticError, match="the policy"):
        env.rollout(5, fails)
    assert counts(env.rollout(5, ones)) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("counted", [False, True])
def test_an_assigned_step_into_is_called_from_then_on(counted):
    """Assigning or deleting step_into takes effect at the next step."""
    base = ArrayCountingEnv(3)
    env = TransformedEnv(base, StepCounter()) if counted else base
    env.rollout(2)
    env.step(env.rand_action(env.reset()))
    calls = []
    original = base.step_into

    def noted(action, out):
        calls.append(action)
        return original(action, out)

    base.step_into = noted
    env.rollout(2)
    assert len(calls) == 2
    env.step(env.rand_action(env.reset()))
    assert len(calls) == 3
    del base.step_into
    env.rollout(2)
    env.step(env.rand_action(env.reset()))
    assert len(calls) == 3


@pytest.mark.parametrize("transformed", [False, True])
@BOTH
def test_another_thread_that_resets_within_a_rollout_is_an_error(make, transformed):
    base = make(100)
    env = TransformedEnv(base, StepCounter()) if transformed else base
    calls = []

    def reset_elsewhere(td):
        calls.append(td)
        if len(calls) == 3:
            thread = threading.Thread(target=base.reset)
            thread.start()
            thread.join(AT_ONCE)
        return ones(td)

    with pytest.raises(StateError, match="join two episodes"):
        env.rollout(6, reset_elsewhere)

    assert env.rollout(6, ones).shape == (6,), "the next rollout begins anew"
