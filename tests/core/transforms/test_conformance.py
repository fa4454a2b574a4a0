"""The core's transforms pass the conformance kit."""

from __future__ import annotations

from steppe.specs import Unbounded
from steppe.transforms import InitTracker, RewardSum, StepCounter, TensorDictPrimer
from steppe_testing import TransformConformance


class BesideAnObservation(TransformConformance):
    """Base class of tests of transforms that need an environment."""

    input_spec = {"observation": Unbounded((3,))}
    works_alone = False


class TestStepCounter(BesideAnObservation):
    expected = {"step_count": (1,)}

    def make_transform(self):
        return StepCounter(3)


class TestInitTracker(BesideAnObservation):
    expected = {"is_init": (1,)}

    def make_transform(self):
        return InitTracker()


class TestRewardSum(BesideAnObservation):
    expected = {"episode_reward": (1,)}

    def make_transform(self):
        return RewardSum()


class TestTensorDictPrimer(BesideAnObservation):
    expected = {("rnn", "hidden"): (4,)}

    def make_transform(self):
        return TensorDictPrimer({("rnn", "hidden"): Unbounded((4,))}, default_value=1.0)
