"""A batch takes from its storage what the root of its caller lacks."""

from __future__ import annotations

from contextlib import closing

import pytest
import torch
from tensordict import TensorDict

from steppe.batched import ParallelEnv, SerialEnv
from steppe.specs import Unbounded
from steppe.transforms import Compose, ObservationTransform, StepCounter, Transform, TransformedEnv, apply_to_composite
from steppe_testing import ArrayCountingEnv, CountingEnv


class Passing(Transform):
    """Returns its data unchanged, and notes what it was shown of the observation."""

    writes_done = False

    def _step(self, tensordict, next_tensordict):
        return next_tensordict.set("shown", tensordict["observation"].clone())

    def _reset(self, tensordict, tensordict_reset):
        return tensordict_reset.set("shown", torch.full_like(tensordict_reset["observation"], -1))

    def transform_observation_spec(self, observation_spec):
        observation_spec["shown"] = observation_spec["observation"].clone()
        return observation_spec


class Wide(ObservationTransform):
    """Another shape and other values."""

    def _apply_transform(self, value):
        return torch.cat([value, value], -1) - 50

    @apply_to_composite
    def transform_observation_spec(self, spec):
        return Unbounded((*spec.shape[:-1], 2 * spec.shape[-1]), dtype=spec.dtype)


class Lower(ObservationTransform):
    """Other values only."""

    def _apply_transform(self, value):
        return value - 50


BASES = {"arrays": ArrayCountingEnv, "tensordicts": CountingEnv}
LENGTHS = (3, 5)


def batch(kind, base, *parts):
    def make(length):
        return lambda: TransformedEnv(base(length), Compose(*(part() for part in parts)))

    return kind(2, [make(length) for length in LENGTHS])


@pytest.mark.parametrize("base", BASES.values(), ids=BASES.keys())
@pytest.mark.parametrize("outer", [Wide, Lower])
@pytest.mark.parametrize("kind", [SerialEnv, ParallelEnv])
def test_transforms_inside_read_their_own_roots(kind, outer, base):
    """Also if a transform around the batch has replaced the observation, in each way of stepping."""
    with closing(TransformedEnv(batch(kind, base, Passing), outer(["observation"]))) as env:
        data = env.rollout(7, break_when_any_done=False)
        td, steps = env.reset(), []
        for _ in range(7):
            frame, td = env.step_and_maybe_reset(env.rand_action(td))
            steps.append(frame)

        for found in (data, torch.stack(steps, 1)):
            assert found["next", "shown"][0].flatten().tolist() == [0, 1, 2, 0, 1, 2, 0]
            assert found["next", "shown"][1].flatten().tolist() == [0, 1, 2, 3, 4, 0, 1]


@pytest.mark.parametrize("base", BASES.values(), ids=BASES.keys())
@pytest.mark.parametrize("kind", [SerialEnv, ParallelEnv])
def test_an_action_alone_steps_a_batch(kind, base):
    """Rows that were reset since, by masks or by number, count from 0."""
    with closing(batch(kind, base, StepCounter, Passing)) as env:
        env.rollout(2)  # the first steps are validated
        env.reset()

        def step():
            actions = env.full_action_spec.rand()
            following = env.step(TensorDict({"action": actions["action"]}, [2]))["next"]
            return following["step_count"].flatten().tolist(), following["shown"].flatten().tolist()

        assert step() == ([1, 1], [0, 0])
        assert step() == ([2, 2], [1, 1])
        env.reset(TensorDict({"_reset": torch.tensor([[False], [True]])}, [2]))
        assert step() == ([3, 1], [2, 0])
        env.reset_at(None, torch.tensor([0]))
        assert step() == ([1, 2], [0, 1])
        assert step() == ([2, 3], [1, 2])


@pytest.mark.parametrize("base", BASES.values(), ids=BASES.keys())
def test_an_entry_of_the_callers_root_counts(base):
    with closing(batch(SerialEnv, base, StepCounter, Passing)) as env:
        td = env.step_mdp(env.rand_step(env.reset()))
        td["step_count"] += 10
        del td["observation"]

        following = env.rand_step(td)["next"]

        assert following["step_count"].flatten().tolist() == [12, 12]
        assert following["shown"].flatten().tolist() == [1, 1]


def test_a_reset_with_arguments_begins_a_new_root():
    """Its data goes past the storage."""

    class Starting(ArrayCountingEnv):
        def _reset(self, tensordict=None, **kwargs):
            kwargs.pop("options", None)
            return super()._reset(tensordict, **kwargs)

    env = batch(SerialEnv, ArrayCountingEnv, StepCounter)
    env.rollout(2)
    try:
        env.reset(list_of_kwargs=[{}, {}])
    finally:
        pass
    action = TensorDict({"action": env.action_spec.rand()}, [2])
    assert env.step(action)["next", "step_count"].flatten().tolist() == [1, 1]
