"""Every transform of rewards works in the situations of the kit."""

from __future__ import annotations

import torch

from steppe.specs import Binary, Bounded, Unbounded
from steppe.transforms import Transform
from steppe_reward import (
    BinarizeReward,
    LineariseRewards,
    Reward2GoTransform,
    RewardClipping,
    SuccessReward,
    TargetReturn,
)
from steppe_testing import TransformConformance

OBSERVATION = {"observation": Unbounded((3,))}


class OfRewards(TransformConformance):
    """Base class of tests of rewards, with a constant observation."""

    input_spec = OBSERVATION
    expected = {"observation": (3,)}


class TestRewardClipping(OfRewards):
    reward_spec = Unbounded((2,))

    def make_transform(self) -> Transform:
        return RewardClipping(-0.5, 0.25)


class TestBinarizeReward(OfRewards):
    reward_spec = Unbounded((1,), dtype=torch.float64)

    def make_transform(self) -> Transform:
        return BinarizeReward()


class TestLineariseRewards(OfRewards):
    reward_spec = Bounded(-1.0, 2.0, (3,))

    def make_transform(self) -> Transform:
        return LineariseRewards(weights=[1.0, -2.0, 0.5])


class TestSuccessReward(TransformConformance):
    input_spec = {"success": Binary(shape=(1,), dtype=torch.bool)}
    expected = {"success": (1,)}

    def make_transform(self) -> Transform:
        return SuccessReward(scale=10.0)


class TestTargetReturn(TransformConformance):
    input_spec = OBSERVATION
    expected = {"target_return": (1,)}
    works_alone = False

    def make_transform(self) -> Transform:
        return TargetReturn(10.0)


class TestConstantTargetReturn(TransformConformance):
    input_spec = OBSERVATION
    expected = {"target_return": (1,)}
    works_alone = False

    def make_transform(self) -> Transform:
        return TargetReturn(10.0, mode="constant")


class TestReward2GoTransform(TransformConformance):
    input_spec = {("next", "done"): Binary(shape=(1,), dtype=torch.bool), ("next", "reward"): Unbounded((1,))}
    expected = {("next", "reward"): (1,)}
    in_environments = False

    def make_transform(self) -> Transform:
        return Reward2GoTransform(0.9)
