"""ObservationTransform: the base class of transforms of observations."""

from __future__ import annotations

import pytest

from steppe import ObservationTransform, TransformedEnv
from steppe.errors import SpecError
from steppe_testing import ArrayCountingEnv, CountingEnv, NestedCountingEnv


class Negated(ObservationTransform):
    def _apply_transform(self, observation):
        return -observation


@pytest.mark.parametrize("make", [CountingEnv, ArrayCountingEnv])
def test_the_default_key_is_the_observation(make):
    env = TransformedEnv(make(5), Negated())

    assert env.rollout(3)["next", "observation"].flatten().tolist() == [-1, -2, -3]


def test_observations_of_groups_are_the_default_without_others():
    assert ("agents", "observation") in TransformedEnv(NestedCountingEnv(), Negated()).transform.in_keys


def test_an_environment_without_such_an_entry_is_refused():
    class OfImages(Negated):
        default_names = ("pixels",)

    with pytest.raises(SpecError, match="has no 'pixels'; give in_keys"):
        TransformedEnv(CountingEnv(), OfImages()).reset()
