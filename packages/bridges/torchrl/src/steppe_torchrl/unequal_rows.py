"""Stacks of rows with different entries: the empty entries that TorchRL's ``consolidate_spec`` adds to them.

TorchRL needs the same entries in all rows of a stack, so that a row that lacks one has an entry of size 0.
"""

from __future__ import annotations

from typing import Any

from tensordict import lazy_stack
from torchrl.data import Composite, StackedComposite

import steppe.specs as steppe_specs

__all__ = ["padded", "unpadded", "unpadded_spec"]


def padded(data: Any, spec: Any) -> Any:
    """Return data with the empty entries of a consolidated spec of TorchRL.

    Args:
        data: data of batch size ``[*lead, *spec.shape]``. Other entries that it lacks stay missing.
        spec: the consolidated spec.
    """
    lead = data.batch_size[: data.ndim - spec.ndim]
    if isinstance(spec, StackedComposite):
        dim = spec.dim + len(lead)
        parts = zip(data.unbind(dim), spec.unbind(spec.dim), strict=True)
        return lazy_stack([padded(*part) for part in parts], dim)
    out = data.copy()
    for key, entry in spec.items():
        value = data.get(key, None)
        if value is None and 0 in entry.shape:
            out.set(key, entry.zero(lead))
        elif value is not None and isinstance(entry, (Composite, StackedComposite)):
            out.set(key, padded(value, entry))
    return out


def unpadded_spec(spec: Any) -> Any:
    """Return a Composite of steppe without the empty entries in its stacks; itself if it has none."""
    if isinstance(spec, steppe_specs.StackedComposite):
        parts = [unpadded_spec(part) for part in spec.unbind(spec.dim)]
        names = {name for part in parts for name in part.keys() if any(_size(other, name) for other in parts)}
        for part in parts:
            for name in [name for name in part.keys() if name in names and not _size(part, name)]:
                del part[name]
        return steppe_specs.StackedComposite(*parts, dim=spec.dim)
    out = spec.clone()
    for name, entry in spec.items():
        if isinstance(entry, (steppe_specs.Composite, steppe_specs.StackedComposite)):
            out[name] = unpadded_spec(entry)
    return out


def _size(spec: Any, name: str) -> int:
    """Return the number of elements of an entry and of all entries in it; 0 if there is none."""
    if name not in spec.keys() or spec[name] is None:
        return 0
    entry = spec[name]
    leaves = entry.values(True, True) if isinstance(entry, steppe_specs.Composite) else [entry]
    return sum(leaf.numel() for leaf in leaves if leaf is not None)


def unpadded(data: Any, spec: Any, consolidated: Any) -> Any:
    """Return data without the empty entries of a consolidated spec.

    Args:
        data: data of batch size ``[*lead, *spec.shape]``.
        spec: the spec without them.
        consolidated: the spec with them, of steppe too.
    """
    if isinstance(spec, steppe_specs.StackedComposite):
        dim = spec.dim + data.ndim - spec.ndim
        parts = zip(data.unbind(dim), spec.unbind(spec.dim), consolidated.unbind(spec.dim), strict=True)
        return lazy_stack([unpadded(*part) for part in parts], dim)
    out = data.exclude(*(name for name in consolidated.keys() if name not in spec.keys()))
    for name, entry in spec.items():
        if isinstance(entry, (steppe_specs.Composite, steppe_specs.StackedComposite)) and name in out.keys():
            out.set(name, unpadded(out.get(name), entry, consolidated[name]))
    return out
