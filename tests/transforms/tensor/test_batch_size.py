"""BatchSizeTransform: another batch size for an environment."""

from __future__ import annotations

import pytest
import torch
from tensordict import TensorDict

from steppe.errors import SpecError
from steppe.transforms import BatchSizeTransform, Compose, RewardSum, StepCounter, TransformedEnv
from steppe_testing import CountingEnv, NestedCountingEnv, StatelessCountingEnv


def squeezed(data, key):
    return data[key].squeeze(-1).tolist()


def test_a_stateless_environment_is_given_a_batch_size():
    env = TransformedEnv(StatelessCountingEnv(3), Compose(StepCounter(2), BatchSizeTransform([5])))

    assert env.batch_size == (5,)
    assert env.action_spec.shape == (5, 3)
    env.check_env_specs()
    data = env.rollout(4, break_when_any_done=False)
    assert data.batch_size == (5, 4)
    assert squeezed(data[3], "step_count") == [0, 1, 0, 1]


@pytest.mark.parametrize(
    ("size", "reshape", "expected"),
    [((6,), lambda data: data.reshape(2, 3), (2, 3)), ((2, 3), lambda data: data.reshape(-1), (6,))],
)
def test_a_batch_is_reshaped(size, reshape, expected):
    base = CountingEnv(3, batch_size=size)
    env = TransformedEnv(base, Compose(StepCounter(), BatchSizeTransform(reshape_fn=reshape), RewardSum()))

    assert env.batch_size == expected
    assert env.observation_spec["observation"].shape == (*expected, 1)
    env.check_env_specs()
    data = env.rollout(5, break_when_any_done=False)
    assert data.batch_size == (*expected, 5)
    assert squeezed(data.reshape(6, 5)[4], "step_count") == [0, 1, 2, 0, 1]

    td = env.step_mdp(env.rand_step(env.reset()))
    mask = torch.zeros(expected, dtype=torch.bool)
    mask.view(-1)[1] = True
    td["_reset"] = mask.unsqueeze(-1)
    env.reset(td)
    assert torch.equal(td["step_count"].squeeze(-1) == 0, mask)
    assert torch.equal(td["observation"].squeeze(-1) == 0, mask)
    env.rand_action(td)["_step"] = mask
    assert (env.step(td)["next", "observation"] == 1).all()


def test_a_batch_may_be_unsqueezed():
    env = TransformedEnv(CountingEnv(3), BatchSizeTransform(reshape_fn=lambda data: data.unsqueeze(0)))

    assert env.batch_size == (1,)
    env.check_env_specs()


def test_a_function_may_make_the_batch_at_the_reset():
    def repeat(td, fresh):
        return fresh.expand(4).clone()

    env = TransformedEnv(StatelessCountingEnv(3), BatchSizeTransform([4], reset_func=repeat))

    assert env.reset().batch_size == (4,)
    assert env.reset(TensorDict(batch_size=[4])).batch_size == (4,)


def test_batch_size_needs_exactly_one_argument():
    for wrong in ({}, {"batch_size": [2], "reshape_fn": lambda data: data}):
        with pytest.raises(SpecError, match="pass either batch_size or reshape_fn"):
            BatchSizeTransform(**wrong)
    with pytest.raises(SpecError, match="Use reshape_fn"):
        TransformedEnv(CountingEnv(3, batch_size=(2,)), BatchSizeTransform([4]))
    with pytest.raises(SpecError, match="keep the number of rows"):
        TransformedEnv(CountingEnv(3, batch_size=(2,)), BatchSizeTransform(reshape_fn=lambda data: data[:1]))


def test_groups_are_reshaped_with_their_batch():
    env = TransformedEnv(
        NestedCountingEnv(3, batch_size=(4,), root_done="any"),
        Compose(BatchSizeTransform(reshape_fn=lambda data: data.reshape(2, 2)), StepCounter()),
    )

    env.check_env_specs()
    assert env.rollout(2)["agents", "step_count"].shape == (2, 2, 2, 2, 1)
