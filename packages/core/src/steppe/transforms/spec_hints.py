"""Which transform is behind data that no spec describes: a sentence for errors, with the method to write."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from steppe.transforms.base import Transform

__all__ = ["spec_hint"]

#: Methods of a transform that make data, and say all of its specs at once.
_WRITES = ("_apply_transform", "_call", "_step", "_reset")
_SAYS_ALL = ("transform_output_spec", "transform_specs")


def spec_hint(parts: Sequence[Transform], key: Any, kind: str) -> str:
    """Name the transform that writes an entry, and the method in which it has to say so; nothing where none does.

    Args:
        parts: the transforms of an environment, in order.
        key: the entry.
        kind: ``"observation"``, ``"reward"`` or ``"done"``.
    """
    method = f"transform_{kind}_spec"
    writers = [part for part in parts if key in part.out_keys and overrides(part, *_WRITES)]
    if not writers:
        # Without keys a transform may write anything, and one that changes specs has said what.
        silent = [part for part in parts if not part.out_keys and not overrides(part, method, *_SAYS_ALL)]
        writers = [part for part in silent if overrides(part, *_WRITES[1:])]
    if not writers:
        return ""
    part = writers[-1]
    name = type(part).__name__
    if overrides(part, method, *_SAYS_ALL):
        return f"The transform {name} writes it, and its {method} says otherwise."
    return (
        f"The transform {name} writes it and does not say so: define {name}.{method}({kind}_spec), which returns the "
        f"spec with {key!r} in it as it is then."
    )


def overrides(part: Transform, *names: str) -> bool:
    """Whether a transform defines one of these methods itself."""
    return any(getattr(type(part), name) is not getattr(Transform, name) or name in part.__dict__ for name in names)
