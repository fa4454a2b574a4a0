"""Transforms of tensors: their shapes, their bounds, and what is in them."""

from __future__ import annotations

from .cat import CatTensors
from .clip import ClipTransform
from .dims import SqueezeTransform, UnsqueezeTransform
from .expand import ExpandAs
from .finite import FiniteTensorDictCheck
from .flatten import FlattenObservation
from .hashes import Hash
from .permute import PermuteTransform
from .pin import PinMemoryTransform
from .sign import SignTransform
from .stack import Stack
from .timer import Timer

__all__ = [
    "CatTensors",
    "ClipTransform",
    "ExpandAs",
    "FiniteTensorDictCheck",
    "FlattenObservation",
    "Hash",
    "PermuteTransform",
    "PinMemoryTransform",
    "SignTransform",
    "SqueezeTransform",
    "Stack",
    "Timer",
    "UnsqueezeTransform",
]
