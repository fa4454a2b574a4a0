"""Masks: which categories are allowed, row by row.

A mask is a bool tensor with one entry per category in its last dimension. A row without an allowed category restricts
nothing: it belongs to an agent that has left, whose actions are ignored.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import torch

from steppe.errors import NotSupported, SpecError

from .dtypes import CPU

MaskLike: TypeAlias = "torch.Tensor | np.ndarray | Sequence[object] | None"

__all__ = ["MaskLike", "allowed", "allowed_categories", "checked", "compressed", "draw", "moved", "nearest"]


def checked(mask: MaskLike, full: torch.Size, *, name: str, device: torch.device | None) -> torch.Tensor | None:
    """Return ``mask`` as a bool tensor of the shape ``full``, or None.

    Zeros and ones of any dtype are valid. The mask of one row may have any number of dimensions, such as a grid with
    one element per category.

    Raises:
        SpecError: it holds other values, does not broadcast, or the shape is dynamic.
    """
    if mask is None:
        return None
    if -1 in full:
        raise SpecError(f"{name}: a mask needs static sizes, found shape {tuple(full[:-1])} and {full[-1]} categories.")
    if type(mask) is torch.Tensor and mask.dtype is torch.bool and mask.shape == full and device in (None, mask.device):
        return mask.clone()  # the common case: a transform sets a mask at each step
    entries = mask.to(device) if isinstance(mask, torch.Tensor) else torch.as_tensor(mask, device=device or CPU)
    flags = entries.to(torch.bool)
    if entries.dtype is not torch.bool and bool((entries != flags.to(entries.dtype)).any()):
        raise SpecError(f"{name}: expected a mask of dtype torch.bool, found other values than 0 and 1 in {entries}.")
    if flags.ndim > len(full) and flags.numel() in (flags.shape[-1], full[-1]):
        flags = flags.reshape(-1)
    try:
        out: torch.Tensor = flags.clone().expand(full)
    except RuntimeError:
        raise SpecError(
            f"{name}: expected a mask that broadcasts to {tuple(full)}, found {tuple(flags.shape)}."
        ) from None
    return out


def compressed(mask: torch.Tensor) -> torch.Tensor:
    """Remove leading dimensions along which all rows are equal."""
    while mask.ndim > 1 and bool((mask == mask[:1]).all()):
        mask = mask[0]
    return mask


def allowed(mask: torch.Tensor) -> torch.Tensor:
    """Return the mask with all categories allowed in rows without an allowed one."""
    return mask | ~mask.any(-1, keepdim=True)


def draw(
    mask: torch.Tensor, lead: torch.Size, *, generator: torch.Generator | None, device: torch.device
) -> torch.Tensor:
    """Draw allowed categories ``[*lead, *mask.shape[:-1]]``, int64, uniformly in each row."""
    rows = allowed(mask).to(device).reshape(-1, mask.shape[-1])
    size = torch.Size((*lead, *mask.shape[:-1]))
    if size.numel() == 0:
        return torch.zeros(size, dtype=torch.int64, device=device)
    drawn = torch.multinomial(rows.float(), lead.numel(), replacement=True, generator=generator)
    return drawn.T.reshape(size)


def nearest(index: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Return the nearest allowed category for each category of ``index``, the smaller one of two."""
    n = mask.shape[-1]
    distance = (torch.arange(n, device=index.device) - index.unsqueeze(-1)).abs()
    return distance.masked_fill(~allowed(mask).to(index.device), n).argmin(-1)


def moved(mask: torch.Tensor | None, positions: torch.Tensor) -> torch.Tensor | None:
    """Reorder the rows of a mask by ``positions`` in the flattened batch."""
    if mask is None:
        return None
    return mask.reshape(-1, mask.shape[-1])[positions.to(mask.device)]


def allowed_categories(
    mask: torch.Tensor | None, n: int, *, use_mask: bool, device: torch.device | None
) -> torch.Tensor:
    """Return the categories that all rows allow, ``[k]`` int64.

    Raises:
        NotSupported: rows allow different categories.
    """
    if not use_mask or mask is None or n == 0:
        return torch.arange(n, device=device or CPU)
    rows = allowed(mask).reshape(-1, n)
    if len(rows) > 1 and not bool((rows == rows[0]).all()):
        raise NotSupported("The rows allow different categories, so there is no one list of them: enumerate spec[i].")
    return rows[0].nonzero().squeeze(-1)
