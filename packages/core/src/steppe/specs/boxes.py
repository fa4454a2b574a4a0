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

    The bounds can be edited, in place (``box.low[0] = -2``) or by assignment; a spec follows its box.

    Args:
        low: smallest values, broadcastable to ``shape``.
        high: largest values, broadcastable to ``shape``.
        shape: shape of the data; the broadcast shape of the bounds by default.
    """

    # `_kept` holds the bounds in the smallest shape: a scalar if all elements are equal, and no batch dimensions. `low`
    # and `high` return a copy of the full shape, and the bounds are read from it again after it has been edited.

    def __init__(self, low: torch.Tensor, high: torch.Tensor, *, shape: torch.Size | None = None) -> None:
        bounds = [_tensor(bound) for bound in (low, high)]
        full = shapes.broadcast(bounds[0].shape, bounds[1].shape) if shape is None else shape
        self._kept = [shapes.compress(bound) for bound in bounds]
        self._shapes = [full, full]
        self._shown: list[torch.Tensor | None] = [None, None]
        self._versions = [0, 0]

    @property
    def shape(self) -> torch.Size:
        """Shape of the data."""
        return self._shapes[0]

    @property
    def device(self) -> torch.device:
        """Device of the bounds."""
        return self._kept[0].device

    @property
    def least(self) -> torch.Tensor:
        """Smallest values, in the smallest shape that broadcasts to the full one. Read-only."""
        return self._current(0)

    @property
    def most(self) -> torch.Tensor:
        """Largest values, in the smallest shape that broadcasts to the full one. Read-only."""
        return self._current(1)

    @property
    def low(self) -> torch.Tensor:
        """Smallest values, of the full shape (1 for a dynamic size). Editing or assigning them edits the box."""
        return self._show(0)

    @low.setter
    def low(self, value: object) -> None:
        self._assign(0, value)

    @property
    def high(self) -> torch.Tensor:
        """Largest values, of the full shape (1 for a dynamic size). Editing or assigning them edits the box."""
        return self._show(1)

    @high.setter
    def high(self, value: object) -> None:
        self._assign(1, value)

    def _current(self, i: int) -> torch.Tensor:
        shown = self._shown[i]
        if shown is not None and shown._version != self._versions[i]:
            self._versions[i] = shown._version
            self._kept[i] = shapes.compress(shown.detach().clone())
        return self._kept[i]

    def _show(self, i: int) -> torch.Tensor:
        kept = self._current(i)
        shown = self._shown[i]
        if shown is None:
            with torch.inference_mode(False):  # tensors made in inference mode have no version counter
                shown = self._shown[i] = kept.expand(shapes.static(self._shapes[i])).clone()
            self._versions[i] = shown._version
        return shown

    def _assign(self, i: int, value: object) -> None:
        kept = self._kept[i]
        bound = (
            value.detach()
            if isinstance(value, torch.Tensor)
            else torch.as_tensor(value, dtype=kept.dtype, device=kept.device)
        )
        full = shapes.static(self._shapes[i])
        try:
            bound.expand(full)
        except RuntimeError:
            # To change the shape of a spec, programs assign bounds of the new shape first.
            self._shapes[i] = bound.shape
        self._kept[i], self._shown[i] = shapes.compress(bound.clone()), None

    def has_shape(self, shape: torch.Size) -> bool:
        """Whether both bounds are for this full shape."""
        return self._shapes[0] == shape and self._shapes[1] == shape

    def resize(self, shape: torch.Size) -> None:
        """Change the full shape of the bounds, in place.

        Raises:
            RuntimeError: they do not broadcast to it.
        """
        for i in (0, 1):
            self._current(i).expand(shapes.static(shape))
        self._shapes, self._shown = [shape, shape], [None, None]

    def clone(self) -> ContinuousBox:
        """Return an independent copy."""
        return ContinuousBox(self.least.clone(), self.most.clone(), shape=self.shape)

    def __getstate__(self) -> dict[str, object]:
        return {"_kept": [self.least, self.most], "_shapes": list(self._shapes)}

    def __setstate__(self, state: dict[str, object]) -> None:
        self.__dict__.update(state, _shown=[None, None], _versions=[0, 0])

    def __iter__(self) -> Iterator[torch.Tensor]:
        yield self.low
        yield self.high

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ContinuousBox):
            return NotImplemented
        return self.shape == other.shape and _close(self.least, other.least) and _close(self.most, other.most)

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


class BoxList(Box):
    """One set of values for each of several discrete choices.

    Args:
        boxes: the sets, in order.
    """

    def __init__(self, boxes: Sequence[CategoricalBox | BoxList]) -> None:
        self.boxes = list(boxes)

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

    def __eq__(self, other: object) -> bool:
        return isinstance(other, BoxList) and self.boxes == other.boxes

    def __repr__(self) -> str:
        return f"BoxList({self.boxes})"


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
