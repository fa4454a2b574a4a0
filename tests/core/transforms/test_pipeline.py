"""The base environment receives its own entries, not those of transforms."""

from __future__ import annotations

from contextlib import closing

import pytest
import torch
from tensordict import TensorDict

from steppe.batched import ParallelEnv, SerialEnv
from steppe.envs import EnvBase
from steppe.errors import SpecError
from steppe.specs import Bounded, Composite, Unbounded
from steppe.transforms import (
    Compose,
    ObservationTransform,
    StepCounter,
    Transform,
    TransformedEnv,
    apply_to_composite,
    apply_to_composite_inv,
)
from steppe_testing import ArrayCountingEnv, StatelessCountingEnv


class Watching(EnvBase):
    """Counts to ``length`` in a 2 x 3 observation, and returns what it was shown of it: -1 for nothing."""

    def __init__(self, length=4):
        super().__init__()
        self.length, self.count = length, 0
        self.observation_spec = Composite(observation=Unbounded((2, 3)), seen=Unbounded((1,)))
        self.action_spec = Bounded(-1.0, 1.0, (1,))

    def _reset(self, tensordict=None, **kwargs):
        self.count = 0
        return TensorDict(observation=torch.zeros(2, 3), seen=torch.zeros(1))

    def _step(self, tensordict):
        self.count += 1
        shown = tensordict.get("observation", None)
        seen = torch.tensor([-1.0]) if shown is None else shown.reshape(-1)[:1].to(torch.float32, copy=True)
        observation = torch.full((2, 3), float(self.count))
        done = torch.tensor([self.count >= self.length])
        return TensorDict(observation=observation, seen=seen, reward=torch.ones(1), done=done)

    def _set_seed(self, seed):
        pass


class Flat(ObservationTransform):
    """Another shape."""

    def _apply_transform(self, value):
        return value.flatten(-2) + 100

    @apply_to_composite
    def transform_observation_spec(self, spec):
        return Unbounded((*spec.shape[:-2], spec.shape[-2] * spec.shape[-1]), dtype=spec.dtype)


class Whole(ObservationTransform):
    """Another dtype."""

    def _apply_transform(self, value):
        return value.to(torch.int64) + 100

    @apply_to_composite
    def transform_observation_spec(self, spec):
        return Unbounded(spec.shape, dtype=torch.int64)


class Shifted(ObservationTransform):
    """Another value."""

    def _apply_transform(self, value):
        return value + 100


class ShiftedWhole(Transform):
    """The same, written for all data at once, which says nothing about keys."""

    def _call(self, next_tensordict):
        return next_tensordict.set("observation", next_tensordict["observation"] + 100)

    def _reset(self, tensordict, tensordict_reset):
        return self._call(tensordict_reset)


class ShiftedInPlace(ShiftedWhole):
    """The same in place."""

    def _call(self, next_tensordict):
        next_tensordict["observation"] += 100
        return next_tensordict


def steps(env):
    """Whole steps, one call each."""
    td = env.reset()
    for _ in range(3):
        td = env.rand_step(td)
        yield td["next"]
        td = env.step_mdp(td)


def steps_with_resets(env):
    td = env.reset()
    for _ in range(6):
        td, following = env.step_and_maybe_reset(env.rand_action(td))
        yield td["next"]
        td = following


def partial_steps(env):
    td = env.reset()
    for row in (0, 1, 0, 1):
        if env.batch_size:
            td["_step"] = torch.arange(env.batch_size[0]) == row
        td = env.rand_step(td)
        yield td["next"][row] if env.batch_size else td["next"]
        td = env.step_mdp(td)


def steps_of_rows(env):
    if not env.batch_size:
        return
    rows = torch.tensor([1])
    td = env.reset_at(None, rows)
    for _ in range(3):
        td["action"] = torch.zeros(1, 1)
        env.step_at(td, rows)
        yield td["next"]
        td = env.step_mdp(td)


def rollout(env):
    data = env.rollout(6, break_when_any_done=False)
    yield from data["next"].unbind(-1)


TRANSFORMS = (Flat, Whole, Shifted, ShiftedWhole, ShiftedInPlace)
WAYS = (steps, steps_with_resets, partial_steps, steps_of_rows, rollout)
PLACES = {
    "alone": lambda transform: TransformedEnv(Watching(), transform()),
    "SerialEnv, outside": lambda transform: TransformedEnv(SerialEnv(2, Watching), transform()),
    "SerialEnv, inside": lambda transform: SerialEnv(2, lambda: TransformedEnv(Watching(), transform())),
    "ParallelEnv, outside": lambda transform: TransformedEnv(ParallelEnv(2, Watching, num_processes=1), transform()),
    "ParallelEnv, inside": lambda transform: ParallelEnv(
        2, lambda: TransformedEnv(Watching(), transform()), num_processes=1
    ),
}


@pytest.mark.parametrize(
    ("place", "transform"),
    [
        pytest.param(PLACES[name], transform, id=f"{transform.__name__}, {name}")
        for name in PLACES
        for transform in (TRANSFORMS if "Parallel" not in name else (Flat, ShiftedWhole))
    ],
)
def test_a_replaced_observation_does_not_reach_the_env(place, transform):
    """An observation that a transform replaces does not reach the base in a step."""
    with closing(place(transform)) as env:
        for way in WAYS:
            for following in way(env):
                seen = following["seen"].flatten().tolist()
                shown = following["observation"].flatten(following.batch_dims)[..., 0].flatten().tolist()

                assert all(value >= 101 for value in shown), way.__name__
                # Its own, of the step before; or nothing.
                assert all(value in (-1, own - 101) for value, own in zip(seen, shown, strict=True)), way.__name__


@pytest.mark.parametrize("place", PLACES.values(), ids=PLACES.keys())
def test_an_untouched_observation_reaches_the_environment(place):
    with closing(place(StepCounter)) as env:
        for way in (steps, steps_with_resets, rollout):
            for following in way(env):
                own = following["observation"].flatten(following.batch_dims)[..., :1]
                assert torch.equal(following["seen"].flatten(), own.flatten() - 1), way.__name__


@pytest.mark.parametrize("transform", [Flat, Whole])
def test_array_env_batches_may_change_shape_or_dtype(transform):
    """Transforms of array environments may change the shape or dtype of an entry."""

    def make():
        return ArrayCountingEnv(3, pixels=(2, 3))

    def replaced(env):
        return TransformedEnv(env, transform(["pixels"]))

    expected = replaced(make()).rollout(5, break_when_any_done=False)["next", "pixels"]

    for env in (replaced(SerialEnv(2, make)), SerialEnv(2, lambda: replaced(make()))):
        env.check_env_specs()
        data = env.rollout(5, break_when_any_done=False)
        assert torch.equal(data["next", "pixels"][0], expected)


def test_an_error_names_the_replaced_observation():
    """If the base reads an entry that a transform has replaced, the error says so."""

    class Reading(Watching):
        def _step(self, tensordict):
            tensordict["observation"] + 1
            return super()._step(tensordict)

    told = "reads 'observation' in a step, but a transform has replaced this entry"
    for chain in (Flat(), Compose(Flat(), StepCounter())):
        env = TransformedEnv(Reading(), chain)
        for step in (lambda env: env.rand_step(env.reset()), lambda env: env.rollout(2)):
            with pytest.raises(SpecError, match=told) as caught:
                step(env)
            assert isinstance(caught.value.__cause__, KeyError)


def test_another_key_that_is_missing_stays_a_key_error():
    class Searching(Watching):
        def _step(self, tensordict):
            return tensordict["of another name"]

    env = TransformedEnv(Searching(), Flat())

    with pytest.raises(KeyError, match="of another name"):
        env.rand_step(env.reset())


def test_an_inverse_gives_the_environment_its_own_observation():
    class Both(Shifted):
        def __init__(self):
            super().__init__(["observation"], in_keys_inv=["observation"])

        def _inv_apply_transform(self, value):
            return value - 100

    for env in (TransformedEnv(Watching(), Both()), TransformedEnv(SerialEnv(2, Watching), Both())):
        assert [following["seen"].flatten()[0].item() for following in steps(env)] == [0, 1, 2]


class Spread(Transform):
    """Adds a dimension."""

    def _apply_transform(self, value):
        return value.unsqueeze(-1)

    def _inv_apply_transform(self, value):
        return value.squeeze(-1)

    @apply_to_composite
    def transform_observation_spec(self, spec):
        return spec.unsqueeze(-1)

    @apply_to_composite_inv
    def transform_state_spec(self, spec):
        return spec.unsqueeze(-1)


@pytest.mark.parametrize("batch_size", [(), (2,)])
def test_a_state_of_another_shape_reaches_the_environment(batch_size):
    """The environment reads its state as it returned it, even if a transform without an inverse reshapes it."""
    env = TransformedEnv(StatelessCountingEnv(batch_size=batch_size), Spread(["count"]))

    env.check_env_specs()
    assert env.rollout(3)["next", "count"][..., :, 0, 0].flatten().tolist() == [1, 2, 3] * env.numel()


@pytest.mark.parametrize("batch_size", [(), (2,)])
def test_a_state_with_an_inverse_reaches_the_environment(batch_size):
    env = TransformedEnv(StatelessCountingEnv(batch_size=batch_size), Spread(["count"], in_keys_inv=["count"]))

    env.check_env_specs()
    assert env.rollout(3)["next", "count"][..., :, 0, 0].flatten().tolist() == [1, 2, 3] * env.numel()
