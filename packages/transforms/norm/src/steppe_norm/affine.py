"""What affine transforms have in common: their numbers, and the bounds of what comes out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from steppe.errors import SpecError
from steppe.specs import Bounded, Spec, Unbounded

__all__ = ["affine_leaf", "forward", "inverse", "number_of"]


def forward(value: torch.Tensor, loc: torch.Tensor, scale: torch.Tensor, standard_normal: Any) -> torch.Tensor:
    """``(value - loc) / scale``, or ``value * scale + loc`` where it is not ``standard_normal``."""
    return (value - loc) / scale if standard_normal else value * scale + loc


def inverse(value: torch.Tensor, loc: torch.Tensor, scale: torch.Tensor, standard_normal: Any) -> torch.Tensor:
    """What undoes :func:`forward`."""
    return value * scale + loc if standard_normal else (value - loc) / scale


def number_of(owner: str, name: str, value: Any, *, at_least: float | None = None) -> torch.Tensor:
    """A number or tensor as a tensor.

    Args:
        owner: the class that has the argument.
        name: of the argument.
        value: what was given.
        at_least: numbers that are smaller become this one; a negative one is an error.

    Raises:
        SpecError: it is neither, or negative where it may not be.
    """
    if isinstance(value, torch.Tensor):
        return value
    try:
        tensor = torch.as_tensor(value, dtype=torch.get_default_dtype(), device=torch.device("cpu"))
    except (TypeError, ValueError, RuntimeError) as error:
        raise SpecError(f"{owner}: {name} is a number or a tensor, found {value!r} ({error}).") from None
    if at_least is None:
        return tensor
    if bool((tensor < 0).any()):
        raise SpecError(
            f"{owner}: {name} must not be negative, found {value!r}. A tensor may be: torch.tensor({value})."
        )
    return tensor.clamp_min(at_least)


def affine_leaf(leaf: Spec, apply: Callable[[torch.Tensor], torch.Tensor]) -> Spec:
    """The spec of what an affine function makes of data, element by element."""
    zero = apply(leaf.zero())
    if not isinstance(leaf, Bounded):
        return Unbounded(zero.shape, leaf.device, zero.dtype)
    ends = apply(leaf.space.low), apply(leaf.space.high)
    if any(bool(end.isnan().any()) for end in ends):
        return Unbounded(zero.shape, leaf.device, zero.dtype)
    # A negative scale exchanges the two.
    low, high = torch.minimum(*ends), torch.maximum(*ends)
    return Bounded(low, high, zero.shape, leaf.device, zero.dtype)
