"""The union of specs: what several kinds of entries look like in one TensorDict."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .composite import Composite

__all__ = ["union"]


def union(first: Composite, *others: Composite) -> Composite:
    """One Composite with the entries of all.

    Args:
        first: gives the shape and the device.
        others: what is added; an entry that several have is that of the last, groups that several have are joined.

    Returns:
        A new, unlocked Composite that shares the leaves.
    """
    children: dict[str, Any] = dict(first.items())
    kind = type(first)
    for other in others:
        for name, child in other.items():
            mine = children.get(name)
            children[name] = union(mine, child) if isinstance(mine, kind) and isinstance(child, kind) else child
    return kind(children, shape=first.shape, device=first.device)
