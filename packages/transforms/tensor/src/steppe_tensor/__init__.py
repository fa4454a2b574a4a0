"""Transforms of entries for steppe: casts, selections, shapes, bounds and checks."""

from __future__ import annotations

from .batch_size import BatchSizeTransform
from .callable_transform import CallableTransform
from .casts import DoubleToFloat, DTypeCastTransform
from .cat import CatTensors
from .clip import ClipTransform
from .device import DeviceCastTransform
from .dims import SqueezeTransform, UnsqueezeTransform
from .expand import ExpandAs
from .finite import FiniteTensorDictCheck
from .flatten import FlattenObservation
from .hashes import Hash
from .permute import PermuteTransform
from .pin import PinMemoryTransform
from .select import ExcludeTransform, RemoveEmptySpecs, RenameTransform, SelectTransform
from .sign import SignTransform
from .stack import Stack
from .timer import Timer
from .unary import UnaryTransform

__all__ = [
    "BatchSizeTransform",
    "CallableTransform",
    "CatTensors",
    "ClipTransform",
    "DTypeCastTransform",
    "DeviceCastTransform",
    "DoubleToFloat",
    "ExcludeTransform",
    "ExpandAs",
    "FiniteTensorDictCheck",
    "FlattenObservation",
    "Hash",
    "PermuteTransform",
    "PinMemoryTransform",
    "RemoveEmptySpecs",
    "RenameTransform",
    "SelectTransform",
    "SignTransform",
    "SqueezeTransform",
    "Stack",
    "Timer",
    "UnaryTransform",
    "UnsqueezeTransform",
]
