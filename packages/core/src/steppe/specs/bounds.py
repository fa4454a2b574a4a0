"""bounds_of and mapped_bounds: the range of a spec, and the spec of a function of its data."""

from __future__ import annotations

from collections.abc import Callable

import torch

from .base import Spec
from .continuous import Bounded

__all__ = ["bounds_of", "mapped_bounds"]


def bounds_of(leaf: Spec) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the smallest and the largest value of each element; see :meth:`Spec.bounds`."""
    return leaf.bounds()


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
