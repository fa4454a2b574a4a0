"""The sets of values that specs range over."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
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

    The bounds are kept as small as they can be: one number where all elements share it, and no batch dimensions.

    Args:
        low: smallest values, broadcastable to ``shape``.
        high: largest values, broadcastable to ``shape``.
        shape: shape of the data; the broadcast shape of the bounds by default.
    """

    def __init__(self, low: torch.Tensor, high: torch.Tensor, shape: torch.Size | None = None) -> None:
        low, high = _tensor(low), _tensor(high)
        self.shape = shapes.broadcast(low.shape, high.shape) if shape is None else shape
        self.least = shapes.compress(low)
        self.most = shapes.compress(high)

    @property
    def low(self) -> torch.Tensor:
        """Smallest values, of the full shape (a view; 1 where a size is dynamic)."""
        return self.least.expand(shapes.static(self.shape))

    @property
    def high(self) -> torch.Tensor:
        """Largest values, of the full shape (a view; 1 where a size is dynamic)."""
        return self.most.expand(shapes.static(self.shape))

    def __iter__(self) -> Iterator[torch.Tensor]:
        yield self.low
        yield self.high

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ContinuousBox):
            return NotImplemented
        return self.shape == other.shape and _close(self.least, other.least) and _close(self.most, other.most)

    def __repr__(self) -> str:
        return f"ContinuousBox(low={brief(self.least)}, high={brief(self.most)})"


class CategoricalBox(Box):
    """The integers from 0 to ``n - 1``.

    Args:
        n: how many; -1 where it is not known yet.
    """

    def __init__(self, n: int) -> None:
        self.n = n

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and self.n == other.n

    def __repr__(self) -> str:
        return f"{type(self).__name__}(n={self.n})"


DiscreteBox: TypeAlias = CategoricalBox


class BinaryBox(CategoricalBox):
    """Zero and one, for each of ``n`` elements."""


class BoxList(Box):
    """One set of values for each of several discrete choices.

    Args:
        boxes: the sets, in order.
    """

    def __init__(self, boxes: Sequence[CategoricalBox]) -> None:
        self.boxes = list(boxes)

    @classmethod
    def from_nvec(cls, nvec: torch.Tensor | Sequence[int]) -> BoxList:
        """Make the list for numbers of categories ``nvec`` (nested ones are read in order)."""
        counts: list[int] = _tensor(nvec).flatten().tolist()
        return cls([CategoricalBox(n) for n in counts])

    def __iter__(self) -> Iterator[CategoricalBox]:
        return iter(self.boxes)

    def __len__(self) -> int:
        return len(self.boxes)

    def __getitem__(self, index: int) -> CategoricalBox:
        return self.boxes[index]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, BoxList) and self.boxes == other.boxes

    def __repr__(self) -> str:
        return f"BoxList({self.boxes})"


def _tensor(value: Any) -> torch.Tensor:
    """A tensor stays where it is; numbers and lists go to the CPU."""
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
    """Bounds as a short text: one number, or the first few."""

    def one(value: Any) -> str:
        return f"{value:.6g}" if isinstance(value, float) else str(value)

    if bound.ndim == 0:
        return one(bound.item())
    first = ", ".join(one(value) for value in bound.flatten()[:4].tolist())
    return f"[{first}{', ...' if bound.numel() > 4 else ''}]"
