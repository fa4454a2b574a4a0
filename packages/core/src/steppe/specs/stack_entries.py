"""Functions of specs that may hold stacks, whose parts may have different entries."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .base import Spec
from .composite import Composite
from .keys import as_path
from .lazy_stack import LazyStack
from .stacked_composite import StackedComposite

__all__ = ["check_no_exclusive_keys", "contains_lazy_spec", "every_leaf_key"]


def contains_lazy_spec(spec: Spec) -> bool:
    """Whether a spec is or contains a Stacked or a StackedComposite."""
    if isinstance(spec, LazyStack):
        return True
    return isinstance(spec, Composite) and any(
        contains_lazy_spec(child) for child in spec.values() if child is not None
    )


def every_leaf_key(spec: Spec) -> list[Any]:
    """Return the keys of all leaves, also of leaves in single parts of a stack, which ``keys()`` leaves out."""
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
