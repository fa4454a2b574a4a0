"""What an error suggests for an action that does not fit: an expression of ``action`` that does, or nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from steppe.specs import CPU, Categorical, MultiCategorical, MultiOneHot, OneHot, Spec, Stacked

__all__ = ["as_tensor_hint", "choice_hint", "dtype_hint", "same_order", "shape_hint", "spec_of"]

_CHOICES = (Categorical, OneHot)  # of which all other specs of choices are subclasses


def spec_of(key: Any, rows: Sequence[int] | None = None) -> str:
    """The spec of an action, as a caller writes it; ``rows`` are those that a partial step is about."""
    return f"env.full_action_spec[{key!r}]" + ("" if rows is None else f"[{list(rows)}]")


def as_tensor_hint(value: Any) -> str:
    """For what is no tensor."""
    try:
        torch.as_tensor(value, device=CPU)
    except (TypeError, ValueError, RuntimeError):
        return ""
    return " Make it one with torch.as_tensor(action)."


def shape_hint(leaf: Spec, value: torch.Tensor, expected: tuple[int, ...], spec: str) -> str:
    """For an action of another shape.

    Args:
        leaf: its spec.
        value: the action.
        expected: the shape that it should have.
        spec: ``leaf``, as a caller writes it.
    """
    hint = _categories_hint(leaf, value, expected, spec) if isinstance(leaf, _CHOICES) else ""
    if not hint and same_order(tuple(value.shape), expected):
        hint = f" Write action.reshape({expected})."
    return hint


def _categories_hint(leaf: Spec, value: torch.Tensor, expected: tuple[int, ...], spec: str) -> str:
    found = tuple(value.shape)
    if isinstance(leaf, OneHot):
        several = isinstance(leaf, MultiOneHot)
        numbers = (*expected[:-1], len(leaf.nvec)) if isinstance(leaf, MultiOneHot) else expected[:-1]
        if found == numbers and _are_whole(value):
            return f" Make one-hot rows of numbers with {spec}.encode(action)."
        if not several and found == (*numbers, 1) and _are_whole(value):
            return f" Make one-hot rows of numbers with {spec}.encode(action.squeeze(-1))."
        return ""
    if isinstance(leaf, MultiCategorical):
        parts = leaf.nvec.flatten().tolist() if leaf.nvec.ndim == 1 else []
        if parts and found == (*expected[:-1], sum(parts)):
            return f" Make numbers of one-hot rows, or of logits, with {spec}.to_one_hot_spec().to_categorical(action)."
        return ""
    if found[:-1] != expected:
        return ""
    number = value.int() if value.dtype is torch.bool else value
    if bool(((number != 0).sum(-1) == 1).all()) and bool((number.sum(-1) == 1).all()) and found[-1] == leaf.space.n:
        convert = "action.int().argmax(-1)" if value.dtype is torch.bool else "action.argmax(-1)"
        return f" Make numbers of one-hot rows with {convert}."
    if found[-1] == 1:
        return " Numbers have no dimension of their own: write action.squeeze(-1)."
    if value.dtype.is_floating_point and found[-1] == leaf.space.n:
        return (
            " Pick the category with the largest of these logits with action.argmax(-1), or draw one: "
            "CategoricalActor(module, one_hot=False)."
        )
    return ""


def dtype_hint(leaf: Spec, value: torch.Tensor, dtype: torch.dtype, spec: str) -> str:
    """For values that the dtype of the spec does not hold."""
    if value.dtype.is_floating_point and not bool(value.isfinite().all()):
        return " Values that are not finite choose nothing: look for what has made them."
    if isinstance(leaf, OneHot):
        return f" Pick one category of each row with {spec}.project(action)."
    if isinstance(leaf, Categorical):
        return f" Take the nearest category with {spec}.project(action)."
    if value.dtype.is_floating_point and not dtype.is_floating_point and _are_held(value.round(), dtype):
        return " Write whole numbers: action.round()."
    real = ".real" if value.dtype.is_complex and not dtype.is_complex else ""
    return f" Convert it yourself where that is meant: action{real}.to({dtype})."


def choice_hint(leaf: Spec, value: torch.Tensor, spec: str) -> str:
    """For an action of the right shape and dtype that chooses nothing that there is."""
    if isinstance(leaf, Stacked) or not isinstance(leaf, _CHOICES):
        return ""
    if isinstance(leaf, OneHot):
        # The largest entry of a row means something where it is the only one.
        parts = torch.split(value, leaf.nvec if isinstance(leaf, MultiOneHot) else [leaf.n], -1)
        if all(bool(((part == part.amax(-1, keepdim=True)).sum(-1) == 1).all()) for part in parts):
            return f" Take the largest entry of each row with {spec}.project(action)."
        return f" Make it of numbers with {spec}.encode(numbers)."
    if value.dtype.is_floating_point and not bool(value.isfinite().all()):
        return " Values that are not finite choose nothing: look for what has made them."
    return f" Take the nearest category with {spec}.project(action)."


def _are_whole(value: torch.Tensor) -> bool:
    return not value.dtype.is_floating_point or bool((value == value.round()).all())


def _are_held(value: torch.Tensor, dtype: torch.dtype) -> bool:
    return torch.equal(value.to(dtype).to(value.dtype), value)


def same_order(found: tuple[int, ...], expected: tuple[int, ...]) -> bool:
    """Whether ``reshape`` leaves each element where it belongs: sizes of 1 come and go, or one shape is flat."""
    kept = [tuple(n for n in shape if n != 1) for shape in (found, expected)]
    same_number = torch.Size(found).numel() == torch.Size(expected).numel()
    return same_number and (kept[0] == kept[1] or min(map(len, kept)) <= 1)
