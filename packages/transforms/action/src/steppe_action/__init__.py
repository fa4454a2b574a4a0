"""Transforms of actions for steppe: scaling, discretization, masks, action chunks."""

from __future__ import annotations

from .conditional_policy import ConditionalPolicySwitch
from .discretizer import ActionDiscretizer
from .flatten import FlattenAction
from .mask import ActionMask
from .multi_action import MultiAction
from .projection import DiscreteActionProjection
from .scaling import ActionScaling

__all__ = [
    "ActionDiscretizer",
    "ActionMask",
    "ActionScaling",
    "ConditionalPolicySwitch",
    "DiscreteActionProjection",
    "FlattenAction",
    "MultiAction",
]
