"""union: one Composite with the entries of several."""

from __future__ import annotations

from .base import Spec
from .composite import Composite
from .stacked_composite import StackedComposite

__all__ = ["union"]


def union(first: Composite, *others: Composite) -> Composite:
    """Return a Composite with the entries of all.

    Args:
        first: determines shape and device.
        others: specs whose entries are added. For a leaf in several specs, the last one wins. Nested Composites are
            merged, and stacks row by row.

    Returns:
        A new, unlocked Composite that shares the leaves.
    """
    stack = next((spec for spec in (first, *others) if isinstance(spec, StackedComposite)), None)
    if stack is not None:
        rows = zip(*(spec.unbind(stack.dim) for spec in (first, *others)), strict=True)
        return StackedComposite(*(union(*parts) for parts in rows), dim=stack.dim)
    children: dict[str, Spec | None] = dict(first.items())
    for other in others:
        for name, child in other.items():
            mine = children.get(name)
            if isinstance(mine, Composite) and isinstance(child, Composite):
                child = union(mine, child)
            children[name] = child
    return Composite(children, shape=first.shape, device=first.device)
