"""spec_hint: which transform wrote data that does not match its spec, and the method that fixes it."""

from __future__ import annotations

from collections.abc import Sequence

from tensordict import NestedKey

from steppe.transforms.base import Transform

__all__ = ["spec_hint"]

#: Methods of a transform that write data, and those that change all specs at once.
_WRITES = ("_apply_transform", "_call", "_step", "_reset")
_DECLARES_ALL = ("transform_output_spec", "transform_specs")


def spec_hint(parts: Sequence[Transform], key: NestedKey, kind: str) -> str:
    """Return a sentence for an error: which transform writes an entry, and which method declares its spec.

    Args:
        parts: the transforms of an environment, in order.
        key: the entry.
        kind: ``"observation"``, ``"reward"`` or ``"done"``.

    Returns:
        The sentence, or an empty string if no transform writes the entry.
    """
    method = f"transform_{kind}_spec"
    writers = [part for part in parts if key in part.out_keys and _overrides(part, *_WRITES)]
    if not writers:
        # A transform without keys may write any entry, unless it declares specs.
        undeclared = [part for part in parts if not part.out_keys and not _overrides(part, method, *_DECLARES_ALL)]
        writers = [part for part in undeclared if _overrides(part, *_WRITES[1:])]
    if not writers:
        return ""
    part = writers[-1]
    name = type(part).__name__
    if _overrides(part, method, *_DECLARES_ALL):
        return f"The transform {name} writes it, but its {method} returns another spec."
    return (
        f"The transform {name} writes it without a spec: define {name}.{method}({kind}_spec), which returns the spec "
        f"with the new {key!r}."
    )


def _overrides(part: Transform, *names: str) -> bool:
    """Whether a transform overrides one of these methods."""
    return any(part._writes(name) for name in names)
