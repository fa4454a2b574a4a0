"""The smallest and largest value of each element of a spec, and what a function makes of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from steppe.errors import SpecError

from . import shapes
from .base import Spec
from .binary import Binary
from .categorical import Categorical
from .continuous import Bounded, Unbounded
from .multi_categorical import MultiCategorical
from .multi_one_hot import MultiOneHot
from .one_hot import OneHot

__all__ = ["bounds_of", "mapped_bounds"]


def bounds_of(leaf: Spec) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the smallest and the largest value that each element of a spec's data may have.

    Args:
        leaf: a spec of numbers.

    Returns:
        Two tensors of the spec's shape (1 where a size is dynamic) and dtype. Where there is no bound they are
        infinities, or the limits of an integer dtype.

    Raises:
        SpecError: it is a spec of several entries, of text or of objects.
    """
    shape = shapes.static(leaf.shape)
    if isinstance(leaf, (Bounded, Unbounded)):
        space = leaf.space
        return space.low.expand(shape).to(leaf.dtype), space.high.expand(shape).to(leaf.dtype)
    if isinstance(leaf, (Binary, OneHot, MultiOneHot)):
        return leaf.zero(), leaf.one()
    last: Any
    if isinstance(leaf, MultiCategorical):
        last = leaf.nvec.to(leaf.zero().device) - 1
    elif isinstance(leaf, Categorical):
        last = torch.full((), max(int(leaf.n) - 1, 0), device=leaf.zero().device)
    else:
        raise SpecError(f"Expected a spec of numbers, found {type(leaf).__name__}, which has no bounds: {leaf}.")
    return leaf.zero(), last.expand(shape).to(leaf.dtype)


def mapped_bounds(leaf: Spec, function: Callable[[torch.Tensor], torch.Tensor]) -> Bounded:
    """Return the spec of ``function(value)``, for a function that keeps the shape and never decreases.

    Args:
        leaf: the spec of ``value``, of numbers.
        function: such as clipping, the sign, or a scale that is not negative.

    Raises:
        SpecError: it is a spec of several entries, of text or of objects.
    """
    low, high = (function(bound) for bound in bounds_of(leaf))
    return Bounded(low, high, shape=leaf.shape, device=leaf.device, dtype=low.dtype)
