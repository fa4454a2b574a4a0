"""Affine functions: arguments, forward, inverse, and the specs of results."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from steppe.errors import SpecError
from steppe.specs import Bounded, Spec, Unbounded

__all__ = ["affine_leaf", "forward", "inverse", "number_of"]


def forward(value: torch.Tensor, loc: torch.Tensor, scale: torch.Tensor, standard_normal: Any) -> torch.Tensor:
    """Return ``(value - loc) / scale`` if ``standard_normal``.

    Otherwise return ``value * scale + loc``.
    """
    return (value - loc) / scale if standard_normal else value * scale + loc


def inverse(value: torch.Tensor, loc: torch.Tensor, scale: torch.Tensor, standard_normal: Any) -> torch.Tensor:
    """Undo :func:`forward`."""
    return value * scale + loc if standard_normal else (value - loc) / scale


def number_of(owner: str, name: str, value: Any, *, at_least: float | None = None) -> torch.Tensor:
    """Return a number or tensor as a tensor.

    Args:
        owner: name of the class of the argument.
        name: name of the argument.
        value: the argument.
        at_least: lower limit of a number; then a negative number is an error.

    Raises:
        SpecError: the argument is neither a number nor a tensor, or is negative although ``at_least`` is set.
    """
    if isinstance(value, torch.Tensor):
        return value
    try:
        tensor = torch.as_tensor(value, dtype=torch.get_default_dtype(), device=torch.device("cpu"))
    except (TypeError, ValueError, RuntimeError) as error:
        raise SpecError(f"{owner}: {name} must be a number or a tensor, found {value!r} ({error}).") from None
    if at_least is None:
        return tensor
    if bool((tensor < 0).any()):
        raise SpecError(
            f"{owner}: {name} must not be negative, found {value!r}. A tensor may be negative: torch.tensor({value})."
        )
    return tensor.clamp_min(at_least)


def affine_leaf(leaf: Spec, apply: Callable[[torch.Tensor], torch.Tensor]) -> Spec:
    """Return the spec of the result of an elementwise affine function."""
    zero = apply(leaf.zero())
    if not isinstance(leaf, Bounded):
        return Unbounded(zero.shape, leaf.device, zero.dtype)
    ends = apply(leaf.space.low), apply(leaf.space.high)
    if any(bool(end.isnan().any()) for end in ends):
        return Unbounded(zero.shape, leaf.device, zero.dtype)
    # A negative scale swaps the bounds.
    low, high = torch.minimum(*ends), torch.maximum(*ends)
    return Bounded(low, high, zero.shape, leaf.device, zero.dtype)
