"""The transforms of steppe-time pass the conformance kit."""

from __future__ import annotations

import torch

from steppe.specs import Bounded, Unbounded
from steppe.transforms import Compose, StepCounter
from steppe_testing import TransformConformance
from steppe_time import (
    CatFrames,
    ConditionalSkip,
    FrameSkipTransform,
    NoopResetEnv,
    RandomTruncationTransform,
    TerminateTransform,
    TimeMaxPool,
    TrajCounter,
    gSDENoise,
)


class TestCatFrames(TransformConformance):
    input_spec = {"pixels": Bounded(0, 255, (1, 4, 5), dtype=torch.uint8)}
    expected = {"pixels": (4, 4, 5)}
    works_alone = False

    def make_transform(self):
        return CatFrames(4, -3)


class TestCatFramesBeside(TransformConformance):
    input_spec = {("agents", "seen"): Unbounded((2, 3))}
    expected = {("agents", "stack"): (2, 9)}
    works_alone = False

    def make_transform(self):
        return CatFrames(3, -1, [("agents", "seen")], [("agents", "stack")], padding="constant", padding_value=-1.0)


def low(data):
    return data["observation"][..., 0] < -0.5


class OfEpisodes(TransformConformance):
    """An observation of an episode, which only an environment has."""

    input_spec = {"observation": Unbounded((3,))}
    expected = {"observation": (3,)}
    works_alone = False


class TestConditionalSkip(OfEpisodes):
    on_rows = False

    def make_transform(self):
        return ConditionalSkip(low)


class TestTimeMaxPool(OfEpisodes):
    def make_transform(self):
        return TimeMaxPool(T=3)


class TestFrameSkipTransform(OfEpisodes):
    def make_transform(self):
        return FrameSkipTransform(2)


class TestNoopResetEnv(OfEpisodes):
    def make_transform(self):
        return NoopResetEnv(3)


class TestTrajCounter(TransformConformance):
    input_spec = {"observation": Unbounded((3,))}
    expected = {"traj_count": (1,)}
    works_alone = False
    for_each_row = False

    def make_transform(self):
        return TrajCounter()


class TestRandomTruncationTransform(TransformConformance):
    input_spec = {"observation": Unbounded((3,))}
    expected = {"observation": (3,), "step_count": (1,)}
    works_alone = False

    def make_transform(self):
        return Compose(StepCounter(), RandomTruncationTransform(2, 4, prob=0.5))


def far(data):
    return data["observation"][..., 0] > 0.8


class TestTerminateTransform(OfEpisodes):
    def make_transform(self):
        return TerminateTransform(far)


class TestgSDENoise(TransformConformance):
    input_spec = {"observation": Unbounded((3,))}
    expected = {}
    works_alone = False

    def make_transform(self):
        return gSDENoise(3, 2)
