"""One transform on the rows of a batch."""

from __future__ import annotations

import pytest
import torch

from steppe.batched import SerialEnv
from steppe.specs import Composite, Unbounded
from steppe.transforms import (
    CallableTransform,
    Compose,
    DoubleToFloat,
    ExcludeTransform,
    InitTracker,
    ObservationTransform,
    RenameTransform,
    RewardSum,
    StepCounter,
    Transform,
    TransformedEnv,
    UnaryTransform,
)
from steppe_testing import ArrayCountingEnv, assert_equal_data


class OnTensorDicts(TransformedEnv):
    """The same environment, off the array path."""

    row_writer = None
    no_row_writer_reason = "this test asks for it"

    @classmethod
    def join_rows(cls, envs):
        return None


def base(**kwargs):
    return ArrayCountingEnv(6, info=True, dtype=torch.float64, action="continuous", noise=True, **kwargs)


def play(env, actions, *, stepwise):
    env.set_seed(3)
    if not stepwise:
        return env.rollout(len(actions), actions=actions, break_when_any_done=False)
    td, frames = env.reset(), []
    for action in actions:
        frame, td = env.step_and_maybe_reset(td.set("action", action))
        frames.append(frame)
    return torch.stack(frames, len(env.batch_size))


class Flat(ObservationTransform):
    """A transform whose result has another shape."""

    def _apply_transform(self, value):
        return value.expand((*value.shape[:-1], 6)).reshape((*value.shape[:-1], 2, 3)) + 1

    def transform_observation_spec(self, observation_spec):
        leaf = observation_spec["observation"]
        observation_spec["observation"] = Unbounded((*leaf.shape[:-1], 2, 3), dtype=leaf.dtype)
        return observation_spec


class Difference(Transform):
    """Reads the root and the action."""

    def __init__(self):
        super().__init__(in_keys=["observation"], out_keys=["change"])

    def _step(self, tensordict, next_tensordict):
        change = next_tensordict["observation"] - tensordict["observation"] + tensordict["action"].sum(-1, keepdim=True)
        return next_tensordict.set("change", change)

    def _reset(self, tensordict, tensordict_reset):
        return tensordict_reset.set("change", torch.zeros_like(tensordict_reset["observation"]))

    def transform_observation_spec(self, observation_spec):
        observation_spec["change"] = observation_spec["observation"].clone()
        return observation_spec


class Ends(Transform):
    """A transform that ends an episode by its observation."""

    writes_done = True

    def _call(self, next_tensordict):
        ends = next_tensordict["observation"].to(torch.int64) % 4 == 3
        for name in ("done", "terminated"):
            next_tensordict[name] = next_tensordict[name] | ends
        return next_tensordict


def assert_equal_ways(*parts):
    fast, slow = (kind(base(), Compose(*(part.clone() for part in parts))) for kind in (TransformedEnv, OnTensorDicts))
    assert fast.no_row_writer_reason is None
    actions = list(fast.full_action_spec.rand((15,))["action"])
    first, second = (play(env, actions, stepwise=False) for env in (fast, slow))
    assert_equal_data(first, second)
    inside = SerialEnv(2, lambda: TransformedEnv(base(), Compose(*(part.clone() for part in parts))))
    slow = SerialEnv(2, lambda: OnTensorDicts(base(), Compose(*(part.clone() for part in parts))))
    actions = list(inside.full_action_spec.rand((15,))["action"])
    assert_equal_data(*(play(env, actions, stepwise=True) for env in (inside, slow)))


@pytest.mark.parametrize(
    "parts",
    [
        lambda: (Flat(in_keys=["observation"]),),
        lambda: (StepCounter(5), Flat(in_keys=["observation"]), DoubleToFloat()),
        lambda: (Difference(), InitTracker()),
        lambda: (Ends(), StepCounter()),
        lambda: (StepCounter(3), Ends(), RewardSum()),
        lambda: (UnaryTransform(["observation"], ["double"], fn=lambda x: 2 * x), ExcludeTransform("observation")),
        lambda: (StepCounter(2, update_done=False),),
        lambda: (RenameTransform(["total"], ["sum"]), DoubleToFloat()),
        lambda: (CallableTransform(lambda td: td.set("negative", -td["observation"])),),
    ],
    ids=["shape", "count, shape, cast", "root", "ends", "count, ends, sum", "unary", "truncates", "rename", "function"],
)
def test_a_transform_on_tensordicts_runs_on_rows(parts):
    assert_equal_ways(*parts())


class Times(Transform):
    """Multiplies observations, and actions on the way in."""

    def __init__(self, factor):
        super().__init__(["observation"], in_keys_inv=["action"])
        self.factor = factor

    def _apply_transform(self, value):
        return value * self.factor

    def _inv_apply_transform(self, value):
        return value * self.factor / 10


def test_each_row_uses_the_settings_of_its_own_transforms():
    def make(factor):
        return lambda: TransformedEnv(ArrayCountingEnv(5, action="continuous"), Times(factor))

    env = SerialEnv(3, [make(1), make(2), make(3)])
    data = env.rollout(3, actions=[torch.ones(3, 2)] * 3)

    for row, factor in enumerate((1, 2, 3)):
        assert data["next", "observation"][row].squeeze(-1).tolist() == [factor, 2 * factor, 3 * factor]
        assert torch.allclose(data["next", "reward"][row], torch.tensor(factor / 5))


@pytest.mark.parametrize("limits", [(None, 3), (3, None), (2, 3)])
def test_each_row_ends_at_its_own_limit(limits):
    env = SerialEnv(2, [lambda n=n: TransformedEnv(ArrayCountingEnv(9), StepCounter(n)) for n in limits])
    data = env.rollout(6, break_when_any_done=False)

    for row, limit in enumerate(limits):
        alone = TransformedEnv(ArrayCountingEnv(9), StepCounter(limit)).rollout(6, break_when_any_done=False)
        for key in ("step_count", "truncated", "done"):
            assert torch.equal(data["next", key][row], alone["next", key]), key


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


@pytest.mark.parametrize("kind", [TransformedEnv, OnTensorDicts])
def test_hidden_state_of_a_transform_follows_its_row(kind):
    """Private state of a transform follows its row, and is not in the data."""

    def make():
        negative = UnaryTransform(["observation"], fn=lambda x: -x)
        return kind(base(), Compose(LastTwo(in_keys=["observation"]), negative))

    env = make()
    env.check_env_specs()
    data = env.rollout(7, break_when_any_done=False)
    assert data["observation"].tolist() == [[-0.0, -0.0], [0, -1], [-1, -2], [-2, -3], [-3, -4], [-4, -5], [0, 0]]
    assert "__before" not in data.keys()
    assert "__before" not in data["next"].keys()

    with SerialEnv(2, make) as batch:
        td = batch.reset()
        for _ in range(3):
            frame = batch.step(batch.rand_action(td).set("_step", torch.tensor([True, False])))
            td = batch.step_mdp(frame)
        td = batch.step_mdp(batch.step(batch.rand_action(td)))
    assert td["observation"].tolist() == [[-3, -4], [0, -1]]
