"""Specs: what data looks like, and which values it may take.

A leaf spec describes one tensor (:class:`Bounded`, :class:`Unbounded`, :class:`Categorical`, :class:`OneHot`,
:class:`MultiCategorical`, :class:`MultiOneHot`, :class:`Binary`), a :class:`Composite` a TensorDict. Every spec draws
data, checks it, and follows the operations on shapes that tensors have.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from steppe.imports import lazy_exports

from .action_checks import ArrayCheck, NumberCheck
from .action_decoders import ACTION_TOLIST_LIMIT, ActionDecoder
from .base import Spec
from .binary import Binary
from .boxes import BinaryBox, Box, BoxList, CategoricalBox, ContinuousBox, DiscreteBox
from .categorical import Categorical
from .composite import Composite, conversion_hint
from .composite_entries import INPUT_KINDS, OUTPUT_KINDS, SPEC_KINDS
from .continuous import (
    Bounded,
    BoundedContinuous,
    BoundedDiscrete,
    Unbounded,
    UnboundedContinuous,
    UnboundedDiscrete,
    mapped_bounds,
)
from .dtypes import CPU, numpy_to_torch_dtype_dict, torch_to_numpy_dtype_dict
from .from_data import make_composite_from_td
from .keys import as_path, below_next, is_key, is_memory, is_private
from .masked_choice import MaskedChoice
from .multi_categorical import MultiCategorical
from .multi_one_hot import MultiOneHot
from .nontensor import NonTensor
from .one_hot import OneHot
from .shaping import is_host
from .stack_entries import check_no_exclusive_keys, contains_lazy_spec, every_leaf_key
from .stacked import Stacked
from .stacked_composite import StackedComposite
from .union import union

TensorSpec = Spec  # the name that programs for TorchRL use

__all__ = [
    "ACTION_TOLIST_LIMIT",
    "CPU",
    "INPUT_KINDS",
    "OUTPUT_KINDS",
    "SPEC_KINDS",
    "ActionDecoder",
    "ArrayCheck",
    "Binary",
    "BinaryBox",
    "Bounded",
    "BoundedContinuous",
    "BoundedDiscrete",
    "Box",
    "BoxList",
    "Categorical",
    "CategoricalBox",
    "Composite",
    "ContinuousBox",
    "DiscreteBox",
    "MaskedChoice",
    "MultiCategorical",
    "MultiOneHot",
    "NonTensor",
    "NumberCheck",
    "OneHot",
    "Spec",
    "Stacked",
    "StackedComposite",
    "TensorSpec",
    "Unbounded",
    "UnboundedContinuous",
    "UnboundedDiscrete",
    "as_path",
    "below_next",
    "check_no_exclusive_keys",
    "contains_lazy_spec",
    "conversion_hint",
    "every_leaf_key",
    "is_host",
    "is_key",
    "is_memory",
    "is_private",
    "make_composite_from_td",
    "mapped_bounds",
    "numpy_to_torch_dtype_dict",
    "torch_to_numpy_dtype_dict",
    "union",
]

__getattr__: Callable[[str], Any] = lazy_exports(__name__, kind="env class")[0]
