"""Transforms that write blocks of rows themselves."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from steppe import Bounded, SerialEnv, TransformedEnv, Unbounded
from steppe.envs import BoundWriter
from steppe.transforms import (
    Compose,
    Hooks,
    ObservationTransform,
    RewardSum,
    RowHooks,
    StepCounter,
    SteppingTransform,
    Transform,
)
from steppe_testing import ArrayCountingEnv, ArrayDataEnv, CountingEnv, DataEnv, assert_equal_data


class Doubled(Transform):
    """An observation beside itself: a kernel that replaces an entry by one of another shape under the same key."""

    writes_done = False

    def transform_specs(self, specs):
        specs = specs.copy()
        specs.observation["observation"] = Unbounded((*specs.batch_size, 2))
        return specs

    def shared_key(self):
        return type(self)

    def hooks(self, specs):
        def bind(root, following):
            def step():
                np.copyto(following["observation"], following.before["observation"])
                return False

            def reset(at):
                root["observation"][list(at)] = root.before["observation"][list(at)]

            return step, reset

        def double(_, data):
            return data.set("observation", data["observation"].expand(*data.batch_size, 2))

        return Hooks(step=double, reset=double, reads_root=False, rows=RowHooks(bind, reads=["observation"]))


@pytest.mark.parametrize("base", [ArrayCountingEnv, CountingEnv])
def test_a_kernel_finds_what_it_replaces(base):
    inside = SerialEnv(2, lambda: TransformedEnv(base(3), Doubled()))
    around = TransformedEnv(SerialEnv(2, lambda: base(3)), Doubled())
    expected = torch.tensor([0.0, 1, 2, 0, 1]).reshape(1, 5, 1).expand(2, 5, 2)

    for env in (inside, around):
        env.check_env_specs()
        assert torch.equal(env.rollout(5, break_when_any_done=False)["observation"], expected)


class RunTwice(BoundWriter):
    """Steps another writer twice, and adds up the rewards."""

    def __init__(self, inner):
        self.inner = inner

    def step(self, actions, at=None):
        ended = self.inner.writer.step(actions, at)
        kept = [root.copy() for root, _ in self.inner.root_inputs]
        reward = self.inner.following["reward"].copy()
        for root, following in self.inner.root_inputs:
            root[...] = following
        ended += self.inner.writer.step(actions, at)
        for (root, _), before in zip(self.inner.root_inputs, kept, strict=True):
            root[...] = before
        self.inner.following["reward"] += reward
        return ended

    def reset(self, at, env_info=None):
        self.inner.writer.reset(at, env_info)


class Twice(SteppingTransform):
    """Takes each action twice, and shows the mean of the rewards beside their sum."""

    writes_done = True

    def transform_observation_spec(self, spec):
        spec["mean_reward"] = Unbounded((*spec.shape, 1))
        return spec

    def hooks(self, specs):
        def bind(root, following):
            def step():
                np.multiply(following["reward"], 0.5, out=following["mean_reward"])
                return False

            return step, lambda at: root["mean_reward"].__setitem__(list(at), 0)

        def step(td, following):
            root = self.env.step_mdp(td.copy().set("next", following))
            again = self.env.step(root.set("action", td["action"]))["next"]
            again["reward"] = again["reward"] + following["reward"]
            return again.set("mean_reward", 0.5 * again["reward"])

        def reset(_, fresh):
            return fresh.set("mean_reward", torch.zeros(*fresh.batch_size, 1))

        return Hooks(step=step, reset=reset, rows=RowHooks(bind, wrap=RunTwice, steps_again=True))


def test_a_kernel_runs_once_behind_a_writer_that_steps_twice():
    def make(base):
        env = base({"observation": Unbounded((3,))}, max_steps=8)
        return TransformedEnv(env, Compose(StepCounter(), Twice(), RewardSum()))

    envs = [make(base) for base in (ArrayDataEnv, DataEnv)]
    assert envs[0].no_row_writer_reason is None
    envs[0].check_env_specs()
    for env in envs:
        env.set_seed(3)

    assert_equal_data(*(env.rollout(20, break_when_any_done=False) for env in envs))


def frames():
    return ArrayDataEnv({"pixels": Bounded(0.0, 1.0, (3, 4))})


class Brighter(ObservationTransform):
    """Doubles images by a kernel."""

    keeps_nothing = True

    def __init__(self, out_key="twice"):
        super().__init__(["pixels"], [out_key])
        self.calls = 0

    def _apply_transform(self, value):
        return value * 2

    def row_kernel(self, source, target):
        def run():
            self.calls += 1
            np.multiply(source, 2, out=target)

        return run

    def transform_observation_spec(self, observation_spec):
        observation_spec[self.out_keys[0]] = Bounded(0.0, 2.0, observation_spec["pixels"].shape)
        return observation_spec


class SharedBrighter(Brighter):
    def shared_key(self):
        return type(self)


def test_a_kernel_writes_into_the_given_arrays():
    transform = Brighter()
    data = TransformedEnv(frames(), transform).rollout(4, break_when_any_done=False)

    assert transform.calls >= 4
    assert torch.equal(data["next", "twice"], data["next", "pixels"] * 2)


def test_a_kernel_may_replace_what_it_reads():
    envs = TransformedEnv(frames(), Brighter("pixels")), frames()
    for env in envs:
        env.set_seed(0)
    brighter, plain = (env.rollout(4, break_when_any_done=False)["next", "pixels"] for env in envs)

    assert torch.equal(brighter, plain * 2)


@pytest.mark.parametrize("kind", [Brighter, SharedBrighter])
@pytest.mark.parametrize("inside", [True, False])
def test_kernels_of_batches_write_the_same_data(inside, kind):
    if inside:
        env = SerialEnv(3, lambda: TransformedEnv(frames(), kind()))
    else:
        env = TransformedEnv(SerialEnv(3, frames), kind())
    data = env.rollout(4, break_when_any_done=False)

    assert torch.equal(data["next", "twice"], data["next", "pixels"] * 2)
    assert torch.equal(data["twice"], data["pixels"] * 2)
