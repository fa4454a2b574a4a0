"""step_at and reset_at: some rows of a batch."""

from __future__ import annotations

import pytest
import torch
from tensordict import TensorDict

from steppe import ParallelEnv, SerialEnv
from steppe.errors import ActionError, SpecError
from steppe_testing import CountingEnv, StatelessCountingEnv, assert_equal_data


def batch(**kwargs):
    env = CountingEnv(batch_size=(4,), action="continuous", **kwargs)
    env.reset()
    return env


def actions(*values):
    return TensorDict({"action": torch.tensor(values).unsqueeze(-1).expand(-1, 2).clone()}, [len(values)])


def test_only_the_named_rows_step():
    env = batch()
    td = env.step_at(actions(1.0, 0.5), [3, 1])

    assert env.count.squeeze(-1).tolist() == [0, 1, 0, 1]
    assert td["next", "reward"].squeeze(-1).tolist() == [2, 1]
    assert td.batch_size == (2,)


def test_only_the_named_rows_are_reset():
    env = batch()
    env.rand_step(env.reset())
    td = env.reset_at(None, torch.tensor([2, 0]))

    assert env.count.squeeze(-1).tolist() == [0, 1, 0, 1]
    assert td["observation"].squeeze(-1).tolist() == [0, 0]
    assert not td["done"].any()


@pytest.mark.parametrize("make", [SerialEnv, ParallelEnv])
def test_rows_that_are_left_out_equal_those_of_a_twin(make):
    def reset():
        env = make(4, lambda: CountingEnv(noise=True))
        env.set_seed(3)
        return env, env.reset()

    (env, root), (twin, other) = reset(), reset()
    for rows in ([0, 2], [2], [0]):
        env.step_at(env.rand_action_at(root[rows], rows), rows)
    env.reset_at(None, [0])
    action = twin.rand_action(other)["action"]
    stepped, expected = (each.step(td.set("action", action))["next"] for each, td in ((env, root), (twin, other)))
    assert_equal_data(stepped[[1, 3]], expected[[1, 3]])
    env.close()
    twin.close()


def test_reset_at_writes_into_the_data_it_is_given():
    env = batch()
    td = TensorDict({"mine": torch.ones(1)}, [1])

    assert env.reset_at(td, [2]) is td
    assert td["observation"].shape == (1, 1)


def test_reset_at_hands_each_row_its_env_info():
    env = batch(env_info=True)
    td = env.reset_at(None, [3, 1], env_info={"start": torch.tensor([[30], [10]])})

    assert td["observation"].squeeze(-1).tolist() == [30, 10]
    assert env.begin.squeeze(-1).tolist() == [0, 10, 0, 30]


@pytest.mark.parametrize(
    ("rows", "text"),
    [
        ([4], "0..3"),
        ([-1], "0..3"),
        ([1, 1], "once"),
        ([True, False], "a mask must have 4 entries, one for each row, found 2"),
        ("first", "'first'"),
        ([0.5], "must be integers"),
    ],
)
def test_rows_are_checked(rows, text):
    with pytest.raises(SpecError, match=text):
        batch().reset_at(None, rows)


def test_step_at_needs_actions():
    with pytest.raises(ActionError, match="'action'"):
        batch().step_at(TensorDict({}, [1]), [0])


def test_rows_need_one_batch_dimension():
    with pytest.raises(SpecError, match="one dimension"):
        CountingEnv().reset_at(None, [0])


def test_an_unlocked_environment_steps_data_of_any_size():
    env = StatelessCountingEnv()
    td = env.rand_action(env.reset_at(TensorDict({}, [2]), [5, 9]))

    assert env.step_at(td, [5, 9])["next", "count"].squeeze(-1).tolist() == [1, 1]


@pytest.mark.parametrize(
    ("rows", "counts"),
    [
        ([True, False, False, True], [1, 0, 0, 1]),
        (torch.tensor([[True], [False], [False], [True]]), [1, 0, 0, 1]),
        (slice(1, 3), [0, 1, 1, 0]),
    ],
)
def test_rows_may_be_a_mask_or_a_slice(rows, counts):
    env = batch()
    env.step_at(actions(1.0, 1.0), rows)

    assert env.count.squeeze(-1).tolist() == counts
