"""Partial steps: the mask "_step"."""

from __future__ import annotations

import pytest
import torch
from tensordict import TensorDict

from steppe.errors import SpecError
from steppe_testing import (
    ArrayCountingEnv,
    CountingEnv,
    HeterogeneousCountingEnv,
    MultiKeyCountingEnv,
    NestedCountingEnv,
    StatelessCountingEnv,
    TextCountingEnv,
)

ROWS = torch.tensor([True, False, True])


def started(env):
    """Data of the second step, with an action."""
    return env.rand_action(env.step_mdp(env.rand_step(env.reset())))


@pytest.mark.parametrize("rows", [ROWS, ROWS.unsqueeze(-1)])
def test_a_locked_batch_is_given_the_mask(rows):
    env = CountingEnv(batch_size=(3,))
    td = env.step(started(env).set("_step", rows))

    assert env.count.squeeze(-1).tolist() == [2, 1, 2]
    assert td["next", "observation"].squeeze(-1).tolist() == [2, 1, 2]
    assert "_step" not in td


def test_an_unlocked_environment_sees_the_chosen_rows_only():
    sizes = []

    class Watched(StatelessCountingEnv):
        def _step(self, tensordict):
            sizes.append(tensordict.batch_size)
            return super()._step(tensordict)

    env = Watched()
    td = env.rand_action(env.reset(TensorDict({}, [3])))
    env.step(td.set("_step", ROWS))

    assert sizes == [torch.Size([2])]
    assert td["next", "count"].squeeze(-1).tolist() == [1, 0, 1]


def test_skipped_rows_keep_their_values_and_get_zero_reward():
    env = CountingEnv(batch_size=(3,), action="continuous")
    td = started(env)
    td["action"] = torch.ones(3, 2)
    env.step(td.set("_step", ROWS))

    assert td["next", "reward"].squeeze(-1).tolist() == [2, 0, 2]


def test_skipped_rows_keep_what_was_returned_last():
    env = CountingEnv(batch_size=(3,))
    td = started(env).select("action").set("_step", ROWS)
    env.step(td)

    assert td["next", "observation"].squeeze(-1).tolist() == [2, 1, 2]


@pytest.mark.parametrize("make", [CountingEnv, ArrayCountingEnv])
@pytest.mark.parametrize(("mask", "expected"), [(True, 2), (False, 1)])
def test_a_mask_steps_or_skips_a_single_environment(make, mask, expected):
    env = make()
    td = env.step(started(env).set("_step", torch.tensor(mask)))

    assert td["next", "observation"].item() == expected
    assert "_step" not in td


def test_a_mask_that_is_false_everywhere_steps_nothing():
    env = CountingEnv(batch_size=(3,))
    td = started(env)
    env._step = None  # calling it would fail
    env.step(td.set("_step", torch.zeros(3, dtype=torch.bool)))

    assert td["next", "observation"].squeeze(-1).tolist() == [1, 1, 1]


def test_a_mask_of_another_shape_is_refused():
    env = CountingEnv(batch_size=(3,))
    with pytest.raises(SpecError, match=r"shape of the data, \(3,\), found \(3, 2\)"):
        env.step(started(env).set("_step", torch.ones(3, 2, dtype=torch.bool)))


@pytest.mark.parametrize("make", [NestedCountingEnv, MultiKeyCountingEnv])
def test_nested_data_is_masked_at_every_level(make):
    env = make(batch_size=(3,))
    td = env.step(started(env).set("_step", ROWS))
    key = env.observation_keys[-1]

    assert td["next"].get(key).reshape(3, -1)[:, 0].tolist() == [2, 1, 2]


def test_agents_that_differ_are_masked_row_by_row():
    env = HeterogeneousCountingEnv(batch_size=(3,))
    td = env.step(started(env).set("_step", ROWS))
    last = td["next", "agents"][:, 2]

    assert last["observation"].tolist() == [[2] * 3, [1] * 3, [2] * 3]
    assert last["own_2"].tolist() == [[2] * 2, [1] * 2, [2] * 2]


def test_text_is_masked_like_tensors():
    env = TextCountingEnv(batch_size=(3,))
    td = env.step(started(env).set("_step", ROWS))

    assert td["next", "text"] == ["2", "1", "2"]
