"""The core's transforms against the kit that certifies those of plugins."""

from __future__ import annotations

import torch

from steppe.specs import Bounded, Unbounded
from steppe.transforms import (
    DoubleToFloat,
    InitTracker,
    RenameTransform,
    RewardSum,
    SelectTransform,
    StepCounter,
    TensorDictPrimer,
    UnaryTransform,
)
from steppe_testing import TransformConformance


def squares(value):
    return value**2


class TestUnaryTransform(TransformConformance):
    input_spec = {"observation": Unbounded((3,))}
    expected = {"square": (3,)}

    def make_transform(self):
        return UnaryTransform(["observation"], ["square"], fn=squares)


class TestDoubleToFloat(TransformConformance):
    input_spec = {"observation": Unbounded((3,), dtype=torch.float64), ("a", "b"): Unbounded((2,), dtype=torch.float64)}
    expected = {"observation": (3,), ("a", "b"): (2,)}
    action_spec = Bounded(-1.0, 1.0, shape=(2,), dtype=torch.float64)

    def make_transform(self):
        return DoubleToFloat()


class TestRenameTransform(TransformConformance):
    input_spec = {"observation": Unbounded((3,))}
    expected = {("seen", "by_me"): (3,)}

    def make_transform(self):
        return RenameTransform(["observation"], [("seen", "by_me")])


class TestSelectTransform(TransformConformance):
    input_spec = {"observation": Unbounded((3,)), "noise": Unbounded((2,))}
    expected = {"observation": (3,)}

    def make_transform(self):
        return SelectTransform("observation")


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
