"""Errors inside properties of environments arrive as they were raised."""

from __future__ import annotations

from contextlib import closing

import pytest

from steppe.batched import ParallelEnv, SerialEnv
from steppe.envs import Module
from steppe.transforms import TransformedEnv
from steppe_testing import ArrayCountingEnv, CountingEnv


class Misspelt(CountingEnv):
    """An environment with a typo in a property."""

    @property
    def level(self):
        return self.nonsense

    @property
    def full_observation_spec(self):
        return super().full_observation_spec.nonsense


def test_a_typo_in_a_property_of_an_environment_is_named():
    with pytest.raises(AttributeError, match="'Misspelt' object has no attribute 'nonsense'"):
        _ = Misspelt().level


def test_a_typo_in_a_spec_of_an_environment_is_named():
    with pytest.raises(AttributeError, match="'Composite' object has no attribute 'nonsense'"):
        Misspelt().rollout(2)


def test_a_typo_in_a_property_is_named_by_a_transformed_env():
    """A transformed environment reports a typo inside a property of its base."""
    with pytest.raises(AttributeError, match="'Misspelt' object has no attribute 'nonsense'"):
        _ = TransformedEnv(Misspelt()).level


@pytest.mark.parametrize("base", [SerialEnv, ParallelEnv])
def test_a_typo_in_a_batchs_property_is_not_asked_of_its_envs(base):
    """A name that a batch's property lacks is not looked for in its environments."""

    class Batch(base):
        @property
        def start_value(self):
            return self.full_observation_spec.nonsense

    with closing(Batch(2, ArrayCountingEnv)) as env:
        env.start()
        for wrapper in (env, TransformedEnv(env)):
            with pytest.raises(AttributeError, match="'Composite' object has no attribute 'nonsense'"):
                _ = wrapper.start_value


def test_a_wrappers_property_is_not_looked_for_in_the_base():
    """If a property of a wrapper raises an error, the attribute is not looked up on the wrapped environment."""

    class Wrapped(TransformedEnv):
        @property
        def start(self):
            return self.nonsense

    env = Wrapped(CountingEnv(3, start=1))

    with pytest.raises(AttributeError, match="nonsense"):
        _ = env.start


def test_a_missing_attribute_raises_attribute_error():
    class Plain(Module):
        pass

    assert not hasattr(Plain(), "level")
    with pytest.raises(AttributeError, match="'Plain' object has no attribute 'level'"):
        _ = Plain().level


def test_find_elsewhere_supplies_missing_attributes():
    """Errors inside a property and unknown names are reported for the object itself."""

    class Standing(Module):
        def find_elsewhere(self, name):
            return "found" if name == "level" else super().find_elsewhere(name)

        @property
        def own(self):
            return self.nonsense

    assert Standing().level == "found"
    with pytest.raises(AttributeError, match="'Standing' object has no attribute 'other'"):
        _ = Standing().other
    with pytest.raises(AttributeError, match="'Standing' object has no attribute 'nonsense'"):
        _ = Standing().own
