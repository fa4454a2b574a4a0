"""The transforms of steppe-action pass the conformance kit."""

from __future__ import annotations

import torch

from steppe.specs import Binary, Bounded, OneHot, Unbounded
from steppe_action import (
    ActionDiscretizer,
    ActionMask,
    ActionScaling,
    ConditionalPolicySwitch,
    DiscreteActionProjection,
    FlattenAction,
    MultiAction,
)
from steppe_testing import TransformConformance


class OfActions(TransformConformance):
    """Base class of tests of actions, with a constant observation."""

    input_spec = {"observation": Unbounded((3,))}
    expected = {"observation": (3,)}
    works_alone = False


class TestActionScaling(OfActions):
    action_spec = Bounded(torch.tensor([-2.0, 0.1]), torch.tensor([2.0, 0.7]))

    def make_transform(self):
        return ActionScaling()


class TestActionDiscretizer(OfActions):
    def make_transform(self):
        return ActionDiscretizer(torch.tensor([3, 5]))


class TestRandomActionDiscretizer(OfActions):
    def make_transform(self):
        return ActionDiscretizer(4, sampling=ActionDiscretizer.SamplingStrategy.RANDOM, categorical=False)


class TestDiscreteActionProjection(OfActions):
    action_spec = OneHot(2)

    def make_transform(self):
        return DiscreteActionProjection(2, 5)


class TestFlattenAction(OfActions):
    action_spec = Bounded(-1.0, 1.0, (2, 3))

    def make_transform(self):
        return FlattenAction()


class TestActionMask(TransformConformance):
    input_spec = {"action_mask": Binary(4, dtype=torch.bool)}
    expected = {"action_mask": (4,)}
    action_spec = OneHot(4)
    works_alone = False
    for_each_row = False

    def make_transform(self):
        return ActionMask()


class TestMultiAction(OfActions):
    on_rows = False

    def make_transform(self):
        return MultiAction()


class TestMultiActionOfTheLastReward(OfActions):
    on_rows = False

    def make_transform(self):
        return MultiAction(stack_rewards=False)


def positive(data):
    return data["observation"][..., 0] > 0


def stays(data):
    return data.set("action", torch.zeros(*data.batch_size, 2))


class TestConditionalPolicySwitch(OfActions):
    def make_transform(self):
        return ConditionalPolicySwitch(stays, positive)
