"""The core's transforms against the kit that certifies those of plugins."""

from __future__ import annotations

from steppe.specs import Unbounded
from steppe.transforms import InitTracker, RewardSum, StepCounter, TensorDictPrimer
from steppe_testing import TransformConformance


class TestStepCounter(TransformConformance):
    input_spec = {"observation": Unbounded((3,))}
    expected = {"step_count": (1,)}
    works_alone = False

    def make_transform(self):
        return StepCounter(3)


class TestInitTracker(TransformConformance):
    input_spec = {"observation": Unbounded((3,))}
    expected = {"is_init": (1,)}
    works_alone = False

    def make_transform(self):
        return InitTracker()


class TestRewardSum(TransformConformance):
    input_spec = {"observation": Unbounded((3,))}
    expected = {"episode_reward": (1,)}
    works_alone = False

    def make_transform(self):
        return RewardSum()


class TestTensorDictPrimer(TransformConformance):
    input_spec = {"observation": Unbounded((3,))}
    expected = {("rnn", "hidden"): (4,)}
    works_alone = False

    def make_transform(self):
        return TensorDictPrimer({("rnn", "hidden"): Unbounded((4,))}, default_value=1.0)
