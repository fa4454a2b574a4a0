"""What errors suggest for invalid actions: an expression of ``action`` that is valid, or nothing."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from tensordict import NestedKey

from steppe.specs import CPU, Spec

__all__ = ["as_tensor_hint", "choice_hint", "dtype_hint", "same_order", "shape_hint", "spec_of"]


def spec_of(key: NestedKey, rows: Sequence[int] | None = None) -> str:
    """Return the expression for the spec of an action; with ``rows``, for the specs of these rows of the batch."""
    return f"env.full_action_spec[{key!r}]" + ("" if rows is None else f"[{list(rows)}]")


def as_tensor_hint(value: object) -> str:
    """Suggest a conversion if ``value`` can be made a tensor."""
    try:
        torch.as_tensor(value, device=CPU)
    except (TypeError, ValueError, RuntimeError):
        return ""
    return " Make it one with torch.as_tensor(action)."


def shape_hint(leaf: Spec, value: torch.Tensor, expected: tuple[int, ...], spec: str) -> str:
    """Suggest how to convert an action of a wrong shape.

    Args:
        leaf: its spec.
        value: the action.
        expected: the shape that it must have.
        spec: the expression for ``leaf``.
    """
    hint = leaf.action_hint(value, expected, spec)
    if not hint and same_order(tuple(value.shape), expected):
        hint = f" Write action.reshape({expected})."
    return hint


def dtype_hint(leaf: Spec, value: torch.Tensor, dtype: torch.dtype, spec: str) -> str:
    """Suggest how to convert an action with values that ``dtype``, the one of its spec, cannot hold."""
    hint = choice_hint(leaf, value, spec)
    if hint:
        return hint
    if value.dtype.is_floating_point and not dtype.is_floating_point and _are_held(value.round(), dtype):
        return " Write whole numbers: action.round()."
    real = ".real" if value.dtype.is_complex and not dtype.is_complex else ""
    return f" Convert it yourself where that is meant: action{real}.to({dtype})."


def choice_hint(leaf: Spec, value: torch.Tensor, spec: str) -> str:
    """Suggest how to convert an action of the right shape that is not a valid choice."""
    if value.dtype.is_floating_point and not bool(value.isfinite().all()):
        return " Values that are not finite choose nothing: look for what has made them."
    return leaf.action_hint(value, tuple(value.shape), spec)


def _are_held(value: torch.Tensor, dtype: torch.dtype) -> bool:
    return torch.equal(value.to(dtype).to(value.dtype), value)


def same_order(actual: tuple[int, ...], expected: tuple[int, ...]) -> bool:
    """Whether ``reshape`` keeps the order of elements: the shapes differ in sizes of 1 only, or one of them is flat."""
    sizes = [tuple(n for n in shape if n != 1) for shape in (actual, expected)]
    same_number = torch.Size(actual).numel() == torch.Size(expected).numel()
    return same_number and (sizes[0] == sizes[1] or min(map(len, sizes)) <= 1)
