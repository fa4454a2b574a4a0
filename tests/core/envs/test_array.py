"""ArrayEnv: which path it takes, and that both give equal data."""

from __future__ import annotations

import itertools
import pickle

import pytest
import torch

from steppe.envs import ArrayEnv
from steppe.errors import NotSupported
from steppe.specs import Composite, OneHot, Unbounded
from steppe_testing import (
    ArrayCountingEnv,
    assert_equal_data,
)

VARIANTS = {
    "plain": {},
    "nested": {"nested": True},
    "info": {"info": True},
    "pixels": {"pixels": (4, 5)},
    "float64": {"dtype": torch.float64},
    "uint8": {"dtype": torch.uint8},
    "bool": {"dtype": torch.bool},
    "truncates": {"truncate": True},
    "two actions": {"actions": True},
    "everything": {"nested": True, "info": True, "pixels": (2, 2), "noise": True, "actions": True},
}


OVERRIDES = (
    "_step",
    "_reset",
    "read_obs",
    "read_reward",
    "read_done",
    "read_action",
    "_output_transform",
    "_reset_output_transform",
)


def pair(**kwargs):
    return ArrayCountingEnv(3, **kwargs), ArrayCountingEnv(3, array_path=False, **kwargs)


def rollouts(*envs, **kwargs):
    found = []
    for env in envs:
        env.set_seed(1)
        found.append(env.rollout(8, **kwargs))
    return found


@pytest.mark.parametrize("variant", VARIANTS.values(), ids=VARIANTS)
@pytest.mark.parametrize("break_any", [True, False])
def test_both_paths_give_equal_rollouts(variant, break_any):
    fast, slow = pair(**variant)
    assert fast.row_writer is not None
    assert slow.row_writer is None
    assert_equal_data(*rollouts(fast, slow, break_when_any_done=break_any))


@pytest.mark.parametrize("variant", VARIANTS.values(), ids=VARIANTS)
def test_both_paths_give_equal_steps(variant):
    fast, slow = pair(**variant)
    data = []
    for env in (fast, slow):
        env.set_seed(2)
        td = env.reset()
        frames = []
        for _ in range(5):
            td, following = env.step_and_maybe_reset(env.rand_action(td))
            frames.append(td.clone())
            td = following
        data.append(torch.stack(frames))
    assert_equal_data(*data)


@pytest.mark.parametrize("variant", ["plain", "everything"])
def test_a_policy_sees_equal_data_on_both_paths(variant):
    fast, slow = pair(**VARIANTS[variant])

    def policy(td):
        td.update(fast.full_action_spec.rand(generator=torch.Generator().manual_seed(0)))
        for key in fast.observation_keys:
            td.set(("seen", *((key,) if isinstance(key, str) else key)), td[key].clone())
        return td

    assert_equal_data(*rollouts(fast, slow, policy=policy, trust_policy=True, break_when_any_done=False))


def test_rollouts_longer_than_a_block_of_actions_are_equal():
    fast, slow = ArrayCountingEnv(70, info=True), ArrayCountingEnv(70, info=True, array_path=False)
    data = []
    for env in (fast, slow):
        env.set_seed(1)
        data.append(env.rollout(300, break_when_any_done=False))
    assert_equal_data(*data)


@pytest.mark.parametrize("method", ["_step", "_reset"])
def test_overriding_a_method_leaves_the_array_path(method):
    calls = []

    def override(self, tensordict=None, **kwargs):
        calls.append(method)
        return getattr(super(env_class, self), method)(tensordict, **kwargs)

    env_class = type("Mine", (ArrayCountingEnv,), {method: override})
    env = env_class(3)

    assert env.row_writer is None
    assert_equal_data(*rollouts(env, ArrayCountingEnv(3), break_when_any_done=False))
    assert calls


@pytest.mark.parametrize("method", OVERRIDES)
def test_each_listed_override_leaves_the_array_path(method):
    env_class = type("Mine", (ArrayCountingEnv,), {method: lambda self, *args, **kwargs: None})
    assert env_class().row_writer is None

    env = ArrayCountingEnv()
    setattr(env, method, lambda *args, **kwargs: None)
    assert env.row_writer is None
    delattr(env, method)
    assert env.row_writer is not None


def test_a_method_beside_step_into_does_not_leave_it():
    class Mine(ArrayCountingEnv):
        def _step(self, tensordict):
            raise AssertionError

        def step_into(self, action, out):
            return super().step_into(action, out)

    assert Mine().row_writer is not None


def test_other_methods_may_be_overridden():
    class Mine(ArrayCountingEnv):
        def reset_into(self, out, seed, env_info):
            super().reset_into(out, seed, env_info)
            out["observation"][0] = 100

    assert Mine().row_writer is not None
    assert Mine().reset()["observation"].item() == 100


def test_entries_without_fixed_layout_prevent_rows():
    env = ArrayCountingEnv()
    env.observation_spec = Composite(observation=Unbounded((-1, 2)))
    assert env.row_writer is None

    env = ArrayCountingEnv()
    env.state_spec = Composite(hidden=Unbounded((1,)))
    assert env.row_writer is None

    assert ArrayCountingEnv(auto_reset=True).row_writer is None
    assert ArrayEnv().row_writer is None


def test_without_its_methods_it_says_which_is_missing():
    class Half(ArrayEnv):
        def __init__(self):
            super().__init__()
            self.observation_spec = Composite(observation=Unbounded((1,)))
            self.action_spec = OneHot(2)

        def step_into(self, action, out):
            return False, False

    with pytest.raises(NotSupported, match="reset_into"):
        Half().reset()


def test_actions_are_neither_changed_nor_kept():
    env = ArrayCountingEnv(action="continuous")
    td = env.reset().set("action", torch.tensor([0.25, 0.5]))
    env.step(td)

    assert td["action"].tolist() == [0.25, 0.5]


def test_pickling_forgets_the_plan_and_makes_it_again():
    env = ArrayCountingEnv(4)
    env.rollout(2)
    other = pickle.loads(pickle.dumps(env))

    assert other.row_writer is not None
    assert other.rollout(9).batch_size == (4,)


def test_variants_do_not_share_state():
    envs = [ArrayCountingEnv(**variant) for variant in itertools.islice(VARIANTS.values(), 3)]
    envs[0].rand_step(envs[0].reset())

    assert [env.count for env in envs] == [1, 0, 0]
