"""A transform whose data no spec describes is named, with the method to write."""

from __future__ import annotations

import pytest
import torch

from steppe import SerialEnv, StepCounter, TransformedEnv, check_env_specs
from steppe.errors import SpecError
from steppe.specs import Composite, Unbounded
from steppe.transforms import ObservationTransform, Transform
from steppe_testing import ArrayCountingEnv, CountingEnv

BASES = {
    "tensordicts": CountingEnv,
    "arrays": ArrayCountingEnv,
    "a batch": lambda: SerialEnv(2, ArrayCountingEnv),
}


class Doubled(ObservationTransform):
    """Makes an observation twice as long."""

    def __init__(self, out_key="observation"):
        super().__init__(in_keys=["observation"], out_keys=[out_key])

    def _apply_transform(self, observation):
        return torch.cat([observation, observation], -1)


class Wide(Transform):
    """Makes the reward a float64."""

    def __init__(self):
        super().__init__(in_keys=["reward"], out_keys=["reward"])

    def _apply_transform(self, reward):
        return reward.double()


class Adds(Transform):
    """Adds an entry."""

    def _call(self, next_tensordict):
        return next_tensordict.set("extra", next_tensordict["observation"] * 2)

    def _reset(self, tensordict, tensordict_reset):
        return self._call(tensordict_reset)


class Wrong(Doubled):
    """Says another shape than it makes."""

    def transform_observation_spec(self, observation_spec):
        return Composite(
            {**dict(observation_spec.items()), "observation": Unbounded((*observation_spec.shape, 7))},
            shape=observation_spec.shape,
        )


@pytest.mark.parametrize("base", BASES.values(), ids=BASES)
@pytest.mark.parametrize(
    ("transform", "text"),
    [
        (
            Doubled,
            r"'observation'.*The transform Doubled writes it without a spec: define "
            r"Doubled.transform_observation_spec\(observation_spec\), which returns the spec with the new ",
        ),
        (Wide, r"'reward'.*The transform Wide writes it.*define Wide.transform_reward_spec\(reward_spec\)"),
        (Wrong, "The transform Wrong writes it, but its transform_observation_spec returns another spec"),
    ],
)
def test_data_that_no_spec_describes_names_the_transform(base, transform, text):
    def env():
        return TransformedEnv(base(), transform()).append_transform(StepCounter())

    with pytest.raises(SpecError, match=f"(?s){text}"):
        check_env_specs(env())
    if transform is not Wide or base is not ArrayCountingEnv:
        with pytest.raises(SpecError, match=f"(?s){text}"):
            env().rollout(2)


@pytest.mark.parametrize("base", BASES.values(), ids=BASES)
@pytest.mark.parametrize("transform", [Adds, lambda: Doubled("extra")])
def test_an_entry_that_no_spec_has_names_the_transform(base, transform):
    env = TransformedEnv(base(), transform())
    name = type(env.transform).__name__

    with pytest.raises(SpecError, match=rf"'extra' is in the data but in no spec.*define {name}.transform_observation"):
        check_env_specs(env)


def test_an_error_of_the_environment_blames_no_transform():
    class Faulty(CountingEnv):
        def _reset(self, tensordict=None, **kwargs):
            return super()._reset(tensordict).set("more", torch.zeros(1))

    with pytest.raises(SpecError, match="'more' is in the data but in no spec") as caught:
        check_env_specs(TransformedEnv(Faulty(), StepCounter()))
    assert "The transform" not in str(caught.value)
