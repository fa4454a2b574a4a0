"""Masks: which categories are allowed, row by row.

A mask is a bool tensor with one entry per category in its last dimension. The categories of several choices lie there
end to end, in parts of the sizes ``parts``; the functions below return and take the numbers of ``k`` choices in a last
dimension ``[..., k]``. A choice without an allowed category is not restricted: it belongs to an agent that has left,
whose actions are ignored.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import torch

from steppe.errors import NotSupported, SpecError

from . import shapes
from .dtypes import CPU

MaskLike: TypeAlias = "torch.Tensor | np.ndarray | Sequence[object] | None"

__all__ = [
    "MaskLike",
    "allowed",
    "allowed_categories",
    "allows",
    "checked",
    "compressed",
    "draw",
    "in_row",
    "moved",
    "nearest",
]


def checked(mask: MaskLike, full: torch.Size, *, name: str, device: torch.device | None) -> torch.Tensor | None:
    """Return ``mask`` as a bool tensor of the shape ``full``, or None.

    Zeros and ones of any dtype are valid. A mask may have any number of dimensions behind those of the batch, such as
    a grid with one element per category.

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
    if flags.ndim > len(full):
        if flags.numel() == full.numel() and flags.shape[: len(full) - 1] == full[:-1]:
            flags = flags.reshape(full)
        elif flags.numel() in (flags.shape[-1], full[-1]):
            flags = flags.reshape(-1)
    try:
        out: torch.Tensor = flags.clone().expand(full)
    except RuntimeError:
        raise SpecError(
            f"{name}: expected a mask that broadcasts to {tuple(full)}, found {tuple(flags.shape)}."
        ) from None
    return out


def compressed(rows: torch.Tensor) -> torch.Tensor:
    """Remove leading dimensions along which all rows are equal, of a mask or of numbers of categories."""
    while rows.ndim > 1 and bool((rows == rows[:1]).all()):
        rows = rows[0]
    return rows


def in_row(numbers: torch.Tensor, parts: Sequence[int]) -> torch.Tensor:
    """Return the positions of categories in a row that holds the categories of all choices end to end."""
    if len(parts) == 1:
        return numbers
    return numbers + torch.tensor([0, *parts[:-1]], device=numbers.device).cumsum(0)


def allowed(mask: torch.Tensor, parts: Sequence[int]) -> torch.Tensor:
    """Return the mask with all categories allowed for choices without an allowed one."""
    pieces = _allowed_pieces(mask, parts)
    return pieces[0] if len(pieces) == 1 else torch.cat(pieces, -1)


def _allowed_pieces(mask: torch.Tensor, parts: Sequence[int]) -> list[torch.Tensor]:
    pieces = (mask,) if len(parts) == 1 else shapes.split(mask, parts)
    return [piece | ~piece.any(-1, keepdim=True) for piece in pieces]


def allows(mask: torch.Tensor, parts: Sequence[int], numbers: torch.Tensor) -> bool:
    """Whether all categories in ``numbers`` are allowed."""
    flags = allowed(mask, parts).to(numbers.device).expand(*numbers.shape[:-1], mask.shape[-1])
    return bool(flags.gather(-1, in_row(numbers, parts)).all())


def draw(
    mask: torch.Tensor,
    parts: Sequence[int],
    lead: torch.Size,
    *,
    generator: torch.Generator | None,
    device: torch.device,
) -> torch.Tensor:
    """Draw allowed categories ``[*lead, *mask.shape[:-1], k]``, int64, uniformly for each choice."""
    size = torch.Size((*lead, *mask.shape[:-1]))
    if size.numel() == 0:
        return torch.zeros((*size, len(parts)), dtype=torch.int64, device=device)
    columns = []
    for piece in _allowed_pieces(mask.to(device), parts):
        rows = piece.reshape(-1, piece.shape[-1]).float()
        drawn = torch.multinomial(rows, lead.numel(), replacement=True, generator=generator)
        columns.append(drawn.T.reshape(size))
    return _stacked(columns)


def nearest(mask: torch.Tensor, parts: Sequence[int], numbers: torch.Tensor) -> torch.Tensor:
    """Return the nearest allowed category for each category in ``numbers``, the smaller one of two."""
    columns = []
    pieces = _allowed_pieces(mask.to(numbers.device), parts)
    for piece, column in zip(pieces, numbers.unbind(-1), strict=True):
        n = piece.shape[-1]
        distance = (torch.arange(n, device=column.device) - column.unsqueeze(-1)).abs()
        columns.append(distance.masked_fill(~piece, n).argmin(-1))
    return _stacked(columns)


def _stacked(columns: list[torch.Tensor]) -> torch.Tensor:
    return columns[0].unsqueeze(-1) if len(columns) == 1 else torch.stack(columns, -1)


def moved(mask: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
    """Reorder the rows of a mask by ``positions`` in the flattened batch."""
    return mask.reshape(-1, mask.shape[-1])[positions.to(mask.device)]


def allowed_categories(mask: torch.Tensor | None, parts: Sequence[int]) -> list[torch.Tensor]:
    """Return for each choice the categories that all rows allow, ``[n]`` int64.

    Raises:
        NotSupported: rows allow different categories.
    """
    if mask is None:
        return [torch.arange(n, device=CPU) for n in parts]
    rows = allowed(mask, parts).reshape(mask.shape[:-1].numel(), mask.shape[-1])
    if len(rows) > 1 and not bool((rows == rows[0]).all()):
        raise NotSupported("The rows allow different categories, so there is no one list of them: enumerate spec[i].")
    return [piece.nonzero().squeeze(-1) for piece in shapes.split(rows[0], parts)]
