"""Keys of transforms: lists, defaults, nested names."""

from __future__ import annotations

import pytest
import torch

from steppe.errors import SpecError
from steppe.specs import Unbounded
from steppe.transforms import (
    Compose,
    ObservationTransform,
    StepCounter,
    Transform,
    TransformedEnv,
    apply_to_composite,
    apply_to_composite_inv,
)
from steppe_testing import ArrayCountingEnv, CountingEnv, DataEnv, NestedCountingEnv


class Doubled(Transform):
    """Twice the value."""

    def _apply_transform(self, value):
        return 2 * value


class Widened(ObservationTransform):
    """The observation twice."""

    def _apply_transform(self, value):
        return torch.cat([value, value], -1)

    @apply_to_composite
    def transform_observation_spec(self, spec):
        return Unbounded((*spec.shape[:-1], 2 * spec.shape[-1]), dtype=spec.dtype)


class Halved(Transform):
    """The caller gives twice the action."""

    def _inv_apply_transform(self, value):
        return value / 2

    @apply_to_composite_inv
    def transform_action_spec(self, spec):
        return Unbounded(spec.shape, dtype=spec.dtype)


def test_a_result_may_go_to_another_key():
    env = TransformedEnv(CountingEnv(3, start=1), Doubled(["observation"], ["twice"]))

    root = env.reset()

    assert (root["observation"].item(), root["twice"].item()) == (1, 2)


def test_nested_keys_are_keys():
    env = TransformedEnv(NestedCountingEnv(3, root_done="any"), Doubled([("agents", "observation")]))

    data = env.rollout(3)

    assert data["next", "agents", "observation"][:, 0, 0].tolist() == [2, 4, 6]


def test_keys_must_be_as_many():
    with pytest.raises(
        SpecError, match=r"Doubled: in_keys and out_keys must have the same length, found \['a'\] and \['b', 'c'\]"
    ):
        Doubled(["a"], ["b", "c"])
    with pytest.raises(SpecError, match="Halved: in_keys_inv and out_keys_inv must have the same length"):
        Halved(in_keys_inv=["a"], out_keys_inv=["b", "c"])


class Together(Transform):
    """Many entries side by side in one."""

    def __init__(self, in_keys, name):
        super().__init__(in_keys=in_keys, out_keys=[name])

    def _call(self, next_tensordict):
        parts = [next_tensordict[key] for key in self.in_keys]
        return next_tensordict.set(self.out_keys[0], torch.cat(parts, -1))

    def _reset(self, tensordict, tensordict_reset):
        return self._call(tensordict_reset)

    def transform_observation_spec(self, observation_spec):
        observation_spec[self.out_keys[0]] = Unbounded((*observation_spec.shape, len(self.in_keys)))
        return observation_spec


@pytest.mark.parametrize("base", [CountingEnv, ArrayCountingEnv])
def test_a_transform_with_call_may_read_any_number_of_keys(base):
    """A transform that overrides _call may have more in_keys than out_keys."""
    env = TransformedEnv(base(3), Compose(StepCounter(), Together(["observation", "observation"], "both")))

    env.check_env_specs()
    assert env.rollout(3)["next", "both"].tolist() == [[1, 1], [2, 2], [3, 3]]


def test_a_default_key_is_one_that_the_environment_has():
    env = TransformedEnv(ArrayCountingEnv(2, pixels=(4, 4)), Widened())
    transform = env.transform

    env.reset()

    assert transform.in_keys == ["observation", "pixels"]
    unknown = DataEnv({"position": Unbounded((2,))})
    with pytest.raises(SpecError, match=r"none of \['observation', 'pixels'\].*give in_keys.*\['position'\]"):
        TransformedEnv(unknown, Widened()).reset()


def test_default_keys_are_the_groups_without_root_keys():
    """If the root lacks the usual entry, the default keys are those of groups."""
    env = TransformedEnv(ArrayCountingEnv(2, nested=True), Widened())
    transform = env.transform

    assert transform.in_keys == [("data", "observation")]
    wide, plain = (one.rollout(2)["data", "observation"] for one in (env, env.base_env))
    assert wide.shape[-1] == 2 * plain.shape[-1]
    assert TransformedEnv(ArrayCountingEnv(2), transform.clone()).transform.in_keys == ["observation"]


def test_default_keys_come_from_the_specs_before_the_transform():
    class Halved(Transform):
        keeps_nothing = True

        def default_keys(self, specs):
            return ["reward"] if specs is None else list(specs.reward.keys(True, True))

        def _apply_transform(self, value):
            return value / 2

    alone, env = Halved(), TransformedEnv(NestedCountingEnv(3), Compose(Halved(), Halved()))
    rewards = env.base_env.reward_keys

    assert alone.in_keys == ["reward"]
    assert env.transform[1].in_keys == rewards != ["reward"]
    actions = env.full_action_spec.rand((3,))
    data, plain = (one.rollout(3, actions=actions) for one in (env, env.base_env))
    for key in rewards:
        torch.testing.assert_close(data["next"].get(key), plain["next"].get(key) / 4)
