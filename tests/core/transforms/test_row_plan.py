"""Which memory each transform of a chain reads and writes, and why there may be none."""

from __future__ import annotations

import pytest
import torch

from steppe.batched import SerialEnv
from steppe.errors import SpecError
from steppe.specs import Composite, Unbounded
from steppe.transforms import (
    Compose,
    ConditionalSkip,
    ObservationTransform,
    RewardSum,
    StepCounter,
    Transform,
    TransformedEnv,
)
from steppe_testing import ArrayCountingEnv, CountingEnv


def base(**kwargs):
    return ArrayCountingEnv(6, info=True, dtype=torch.float64, action="continuous", noise=True, **kwargs)


class NoKernel(ObservationTransform):
    """Has no kernel for blocks of rows."""

    def _apply_transform(self, value):
        return value + 1


def test_a_chain_without_rows_gives_the_reason():
    def problem(env, *parts):
        return TransformedEnv(env, Compose(*parts)).no_row_writer_reason

    assert "CountingEnv steps on TensorDicts" in problem(CountingEnv(3), StepCounter())
    assert "array_path=False" in problem(base(array_path=False), StepCounter())
    assert "NoKernel is not written for rows of a batch" in problem(SerialEnv(2, base), NoKernel())
    assert problem(SerialEnv(2, base), StepCounter()) is None
    assert "ConditionalSkip may exclude environments" in problem(base(), ConditionalSkip(lambda td: False))
    assert problem(base(), StepCounter()) is None


def test_changing_the_chain_changes_the_path():
    env = TransformedEnv(base(), Compose(StepCounter()))
    env.rollout(2)
    env.append_transform(lambda td: td.set("observation", -td["observation"]))
    assert env.rollout(3)["observation"].squeeze(-1).tolist() == [0, -1, -2]
    env.transform.pop()
    assert env.no_row_writer_reason is None
    assert env.rollout(3)["observation"].squeeze(-1).tolist() == [0, 1, 2]


def test_a_base_that_leaves_the_array_path_is_followed():
    inner = base()
    env = TransformedEnv(inner, StepCounter())
    env.rollout(2)
    step = inner._step
    inner._step = lambda td: step(td).set("reward", torch.full((1,), 7.0))

    assert env.rollout(2)["next", "reward"].squeeze(-1).tolist() == [7, 7]
    assert env.row_writer is None


class MayLeave(ArrayCountingEnv):
    """Leaves the array path if told to, and says so."""

    leaves = False

    def leave(self, leaves):
        self.leaves = leaves
        self.row_writer_changed()

    @property
    def no_row_writer_reason(self):
        return "it says so" if self.leaves else super().no_row_writer_reason


def test_a_base_that_changes_between_two_steps_is_followed():
    inner = MayLeave(9)
    env = TransformedEnv(inner, Compose(RewardSum(), StepCounter()))
    _, td = env.step_and_maybe_reset(env.rand_action(env.reset()))
    step, rewards, ways = inner._step, [], []

    def go_on():
        nonlocal td
        frame, td = env.step_and_maybe_reset(env.rand_action(td))
        rewards.append(frame["next", "reward"].item() > 90)
        ways.append(env.row_steps is not None)

    go_on()
    inner._step = lambda td: step(td).set("reward", torch.full((1,), 99.0))
    go_on()
    del inner._step
    go_on()
    inner.leave(True)
    go_on()
    inner.leave(False)
    go_on()
    inner.reward_spec = Unbounded((1,), dtype=torch.float64)
    go_on()

    assert rewards == [False, True, False, False, False, False]
    assert ways == [True, False, True, False, True, True]
    assert td["step_count"].item() == 7
    assert td["episode_reward"].dtype is torch.float64


class LastTwo(Transform):
    """Stacks the last two observations, of which a later transform may make something else."""

    def memory_spec(self, specs):
        leaf = specs.observation["observation"]
        return Composite({"__before": leaf.clone()}, shape=specs.batch_size)

    def _step(self, tensordict, next_tensordict):
        now = next_tensordict["observation"]
        next_tensordict["observation"] = torch.cat([tensordict["__before"], now], -1)
        return next_tensordict.set("__before", now)

    def _reset(self, tensordict, tensordict_reset):
        now = tensordict_reset["observation"]
        tensordict_reset["observation"] = torch.cat([now, now], -1)
        return tensordict_reset.set("__before", now)

    def transform_observation_spec(self, observation_spec):
        leaf = observation_spec["observation"]
        observation_spec["observation"] = Unbounded((*leaf.shape[:-1], 2), dtype=leaf.dtype)
        return observation_spec


def test_memory_that_others_would_see_is_refused():
    class Open(LastTwo):
        def memory_spec(self, specs):
            return Composite({"before": specs.observation["observation"].clone()})

    with pytest.raises(SpecError, match=r"Open\.memory_spec: 'before' must .* begins with two underscores"):
        _ = TransformedEnv(base(), Open(in_keys=["observation"])).observation_spec
