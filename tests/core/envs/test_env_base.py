"""An environment as an object: closing, copying, moving, describing."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch

from steppe import AsyncEnvPool, ParallelEnv, SerialEnv
from steppe.errors import ClosedError, IgnoredArgumentWarning, NotSupported
from steppe.transforms import StepCounter, TransformedEnv
from steppe_gym import GymEnv
from steppe_testing import (
    ArrayCountingEnv,
    CountingEnv,
    DoNothingEnv,
    DynamicSpecEnv,
    HeterogeneousCountingEnv,
    MetadataEnv,
    ModelCountingEnv,
    MultiKeyCountingEnv,
    NestedCountingEnv,
    StatelessCountingEnv,
    TextCountingEnv,
    assert_equal_data,
)

ALL = [
    ArrayCountingEnv,
    CountingEnv,
    DoNothingEnv,
    DynamicSpecEnv,
    HeterogeneousCountingEnv,
    MetadataEnv,
    MultiKeyCountingEnv,
    NestedCountingEnv,
    StatelessCountingEnv,
    TextCountingEnv,
]


CLOSABLE = {
    "on TensorDicts": CountingEnv,
    "on arrays": ArrayCountingEnv,
    "wrapper": lambda: GymEnv("CartPole-v1"),
    "library's batch": lambda: GymEnv("CartPole-v1", num_envs=2),
    "serial": lambda: SerialEnv(2, CountingEnv),
    "parallel": lambda: ParallelEnv(2, CountingEnv),
    "threads": lambda: AsyncEnvPool([CountingEnv] * 2, backend="threading"),
    "processes": lambda: AsyncEnvPool([CountingEnv] * 2, backend="multiprocessing"),
    "model": ModelCountingEnv,
}


@pytest.mark.parametrize("make", CLOSABLE.values(), ids=CLOSABLE.keys())
@pytest.mark.parametrize(
    "wrap", [lambda env: env, lambda env: TransformedEnv(env, StepCounter())], ids=["bare", "wrapped"]
)
@pytest.mark.parametrize("used", [False, True])
def test_closing_again_does_nothing(make, wrap, used):
    env = wrap(make())
    if used:
        env.rollout(2)
    env.close()

    assert env.is_closed
    env.close()
    env.close(raise_if_closed=False)
    with pytest.raises(ClosedError, match="closed already"):
        env.close(raise_if_closed=True)
    with pytest.raises(ClosedError):
        env.reset()


def test_a_base_may_be_closed_before_its_transformed_env():
    env = TransformedEnv(CountingEnv(), StepCounter())
    env.base_env.close()
    env.close()

    assert env.is_closed


def test_a_context_closes():
    with CountingEnv() as env:
        env.rollout(2)

    assert env.is_closed


@pytest.mark.parametrize("make", ALL)
def test_environments_can_be_pickled_in_the_middle_of_an_episode(make):
    env = make()
    env.set_seed(0)
    td = env.step_mdp(env.rand_step(env.reset()))
    action = env.rand_action(td.copy())
    other = pickle.loads(pickle.dumps(env))

    assert_equal_data(other.step(action.copy()), env.step(action.copy()))
    assert_equal_data(other.rollout(3), env.rollout(3))


def test_deep_copies_are_independent():
    env = CountingEnv()
    env.reset()
    other = copy.deepcopy(env)
    other.rand_step()

    assert (env.count.item(), other.count.item()) == (0, 1)


def test_calling_an_environment_says_that_a_factory_was_wanted():
    with pytest.raises(NotSupported, match=r"ParallelEnv\(4, lambda"):
        CountingEnv()()


def test_append_transform_gives_a_transformed_environment():
    env = CountingEnv().append_transform(StepCounter())

    assert isinstance(env, TransformedEnv)
    assert env.rollout(3)["step_count"].squeeze(-1).tolist() == [0, 1, 2]


class WithNet(CountingEnv):
    def __init__(self):
        super().__init__()
        self.net = torch.nn.Linear(2, 2)


def test_a_network_inside_is_a_submodule():
    env = WithNet()
    assert len(list(env.parameters())) == 2
    assert set(env.state_dict()) == {"net.weight", "net.bias"}
    assert pickle.loads(pickle.dumps(env)).rollout(2).batch_size == (2,)


def test_a_check_takes_its_arguments_in_order():
    CountingEnv().check_env_specs(None, False, 3)
    with pytest.warns(IgnoredArgumentWarning, match="return_contiguous has no effect"):
        CountingEnv().check_env_specs(True)


def test_the_next_root_is_made_of_the_data_by_its_name():
    env = CountingEnv()
    td = env.rand_step(env.reset())

    assert env.step_mdp(next_tensordict=td)["observation"].item() == 1
