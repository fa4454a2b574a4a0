"""Boxes: the sets of values of specs, as attributes ``space``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch

from . import shapes
from .dtypes import CPU

__all__ = ["BinaryBox", "Box", "BoxList", "CategoricalBox", "ContinuousBox", "DiscreteBox"]


class Box:
    """Base of all sets of values."""

    __hash__ = None  # type: ignore[assignment]


class ContinuousBox(Box):
    """The numbers from ``low`` to ``high``, both included, for every element of a shape.

    Bounds are edited by assignment (``box.low = -2``), and a spec follows its box. ``low`` and ``high`` return copies.

    Args:
        low: smallest values, broadcastable to ``shape``.
        high: largest values, broadcastable to ``shape``.
        shape: shape of the data; the broadcast shape of the bounds by default.

    Attributes:
        least: smallest values, in the smallest shape that broadcasts to the full one: a scalar if all elements are
            equal, and no batch dimensions. Read-only.
        most: largest values, likewise.
    """

    def __init__(self, low: torch.Tensor, high: torch.Tensor, *, shape: torch.Size | None = None) -> None:
        low, high = _tensor(low), _tensor(high)
        full = shapes.broadcast(low.shape, high.shape) if shape is None else shape
        self.least, self.most = shapes.compress(low), shapes.compress(high)
        self._low_shape = self._high_shape = full

    @property
    def low(self) -> torch.Tensor:
        """Smallest values, a copy of the full shape (1 for a dynamic size). Assigning them edits the box."""
        return self.least.expand(shapes.static(self._low_shape)).clone()

    @low.setter
    def low(self, value: object) -> None:
        self.least, self._low_shape = _assigned(value, self.least, self._low_shape)

    @property
    def high(self) -> torch.Tensor:
        """Largest values, a copy of the full shape (1 for a dynamic size). Assigning them edits the box."""
        return self.most.expand(shapes.static(self._high_shape)).clone()

    @high.setter
    def high(self, value: object) -> None:
        self.most, self._high_shape = _assigned(value, self.most, self._high_shape)

    def has_shape(self, shape: torch.Size) -> bool:
        """Whether both bounds are for this full shape."""
        return self._low_shape == shape and self._high_shape == shape

    def clone(self) -> ContinuousBox:
        """Return an independent copy."""
        return ContinuousBox(self.least.clone(), self.most.clone(), shape=self._low_shape)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ContinuousBox):
            return NotImplemented
        return self.has_shape(other._low_shape) and _close(self.least, other.least) and _close(self.most, other.most)

    def __repr__(self) -> str:
        return f"ContinuousBox(low={brief(self.least)}, high={brief(self.most)})"


@dataclass
class CategoricalBox(Box):
    """The integers from 0 to ``n - 1``.

    Args:
        n: number of integers; -1 if unknown.
    """

    n: int


DiscreteBox: TypeAlias = CategoricalBox


class BinaryBox(CategoricalBox):
    """Zero and one, for each of ``n`` elements."""


@dataclass
class BoxList(Box):
    """One set of values for each of several discrete choices.

    Args:
        boxes: the sets, in order.
    """

    boxes: Sequence[CategoricalBox | BoxList]

    @staticmethod
    def from_nvec(nvec: torch.Tensor | Sequence[int]) -> Any:
        """Return the list for numbers of categories; a CategoricalBox for a single number.

        Nested numbers give nested lists; the outer list is along the last dimension.
        """
        counts = _tensor(nvec)
        if counts.ndim == 0:
            return CategoricalBox(int(counts))
        return BoxList([BoxList.from_nvec(column) for column in counts.unbind(-1)])

    def __iter__(self) -> Iterator[CategoricalBox | BoxList]:
        return iter(self.boxes)

    def __len__(self) -> int:
        return len(self.boxes)

    def __getitem__(self, index: int) -> CategoricalBox | BoxList:
        return self.boxes[index]


def _assigned(value: object, before: torch.Tensor, shape: torch.Size) -> tuple[torch.Tensor, torch.Size]:
    """Return an assigned bound in its smallest shape, and its full shape.

    To change the shape of a spec, programs assign bounds of the new shape first.
    """
    if isinstance(value, torch.Tensor):
        bound = value.detach().clone()
    else:
        bound = torch.as_tensor(value, dtype=before.dtype, device=before.device)
    try:
        bound.expand(shapes.static(shape))
    except RuntimeError:
        shape = bound.shape
    return shapes.compress(bound), shape


def _tensor(value: object) -> torch.Tensor:
    """Return tensors unchanged; convert numbers and lists to tensors on the CPU."""
    return value if isinstance(value, torch.Tensor) else torch.as_tensor(value, device=CPU)


def _close(a: torch.Tensor, b: torch.Tensor) -> bool:
    if a.dtype is not b.dtype or a.device != b.device:
        return False
    if a.dtype.is_floating_point:
        try:
            return bool(torch.isclose(a.double(), b.double(), rtol=1e-5, atol=1e-8).all())
        except RuntimeError:  # Shapes that do not broadcast.
            return False
    return torch.equal(a, b)


def brief(bound: torch.Tensor) -> str:
    """Return bounds as a short text: one number, or the first few numbers."""

    def one(value: object) -> str:
        return f"{value:.6g}" if isinstance(value, float) else str(value)

    if bound.ndim == 0:
        return one(bound.item())
    first = ", ".join(one(value) for value in bound.flatten()[:4].tolist())
    return f"[{first}{', ...' if bound.numel() > 4 else ''}]"
