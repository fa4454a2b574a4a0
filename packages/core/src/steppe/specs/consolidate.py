"""consolidate_spec and related functions: stacks whose parts have different entries."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from steppe.errors import SpecError

from .base import Spec
from .composite import Composite
from .continuous import Unbounded
from .keys import as_path
from .lazy_stack import LazyStack
from .nontensor import NonTensor
from .stacked import stack
from .stacked_composite import StackedComposite

__all__ = ["check_no_exclusive_keys", "consolidate_spec", "contains_lazy_spec", "every_leaf_key"]


def contains_lazy_spec(spec: Spec) -> bool:
    """Whether a spec is or contains a Stacked or a StackedComposite."""
    if isinstance(spec, LazyStack):
        return True
    return isinstance(spec, Composite) and any(
        contains_lazy_spec(child) for child in spec.values() if child is not None
    )


def every_leaf_key(spec: Spec) -> list[Any]:
    """Return the keys of all leaves, including those of single parts of a stack, which ``keys()`` leaves out."""
    if not isinstance(spec, Composite):
        return []
    keys: list[Any] = []
    for part in _parts(spec):
        for name, child in part.items():
            if isinstance(child, Composite):
                below = every_leaf_key(child)
                keys += [as_path((name, key)) for key in below]
            elif child is not None:
                keys.append(name)
    return list(dict.fromkeys(keys))


def _parts(spec: Composite) -> Sequence[Composite]:
    return spec.specs if isinstance(spec, StackedComposite) else (spec,)


def check_no_exclusive_keys(spec: Spec, recurse: bool = True) -> bool:
    """Whether all parts of each stack have the same entries.

    Args:
        spec: any spec.
        recurse: check nested specs too.
    """
    if not isinstance(spec, Composite):
        return True
    parts = _parts(spec)
    if len(parts) > 1 and len({frozenset(part.keys(include_nested=recurse)) for part in parts}) > 1:
        return False
    children = [child for part in parts for child in part.values() if child is not None]
    return not recurse or all(map(check_no_exclusive_keys, children))


def consolidate_spec(
    spec: Composite, recurse_through_entries: bool = True, recurse_through_stack: bool = True
) -> Composite:
    """Add entries of single parts of a stack to its other parts, with a size of 0.

    Args:
        spec: any Composite; a changed copy is returned.
        recurse_through_entries: include nested Composites.
        recurse_through_stack: first do the same in each part.

    Raises:
        SpecError: an entry has no dimension after the batch size that could have size 0.
    """
    if not isinstance(spec, Composite):
        return spec
    if not isinstance(spec, StackedComposite):
        out = spec.clone()
        if recurse_through_entries:
            for name, child in spec.items():
                if isinstance(child, Composite):
                    out.set(name, consolidate_spec(child, recurse_through_entries, recurse_through_stack))
        return out
    parts = [part.clone() for part in spec.specs]
    if recurse_through_stack:
        parts = [consolidate_spec(part, recurse_through_entries, recurse_through_stack) for part in parts]
    _add_missing(parts)
    result: Composite = stack(parts, spec.dim)
    return result


def _add_missing(parts: list[Composite]) -> None:
    names = {name: child for part in reversed(parts) for name, child in reversed(part.items())}
    for name, example in names.items():
        for part in parts:
            if name not in part:
                part.set(name, _empty_like(name, example, part.ndim))
        children = [part[name] for part in parts]
        if all(isinstance(child, Composite) for child in children):
            _add_missing(children)


def _empty_like(name: str, spec: Spec | None, batch_dims: int) -> Spec | None:
    """Return a spec with the same number of dimensions and no elements."""
    if spec is None or isinstance(spec, NonTensor):
        return spec
    if isinstance(spec, Composite):
        empty = Composite(shape=spec.shape, device=spec.device)
        for key, child in spec.items():
            empty.set(key, _empty_like(key, child, batch_dims))
        return empty
    if spec.ndim <= batch_dims:
        raise SpecError(
            f"{name!r}: expected a dimension after the batch size that can be made 0 where the entry is missing, found "
            f"shape {tuple(spec.shape)}. Give it one: spec.unsqueeze(-1)."
        )
    shape = (*spec.shape[:batch_dims], 0, *spec.shape[batch_dims + 1 :])
    return Unbounded(shape, spec.device, spec.dtype)
