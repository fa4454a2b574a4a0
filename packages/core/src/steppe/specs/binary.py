"""Zeros and ones."""

from __future__ import annotations

from typing import Any

import torch

from steppe.errors import SpecError

from . import sampling, shapes
from .base import DeviceLike
from .boxes import BinaryBox
from .dtypes import CPU
from .leaf import Leaf
from .shapes import ShapeLike

__all__ = ["Binary"]


class Binary(Leaf):
    """Zero or one, independently for every element of a shape.

    Args:
        n: last size of the shape; by default that of ``shape``.
        shape: shape of the data; ``[n]`` by default.
        device: device of the data, or None.
        dtype: dtype of the data.

    Raises:
        SpecError: neither ``n`` nor ``shape`` is given, or they contradict each other.
    """

    _default_dtype = torch.int8

    def __init__(
        self,
        n: int | None = None,
        shape: ShapeLike | None = None,
        device: DeviceLike = None,
        dtype: Any = torch.int8,
    ) -> None:
        if n is None and shape is None:
            raise SpecError("Binary: expected n or shape, found neither.")
        super().__init__(shape=(n or 0,) if shape is None else shape, device=device, dtype=dtype)
        if n is not None and (self._shape[-1] not in (n, -1) if self._shape else n != 0):
            raise SpecError(f"Binary: expected a shape whose last size is n={n}, found {tuple(self._shape)}.")

    @property
    def n(self) -> int:
        """Last size of the shape; 1 where there is none."""
        return self._shape[-1] if self._shape else 1

    @property
    def space(self) -> BinaryBox:
        """The values, as a BinaryBox."""
        return BinaryBox(self.n)

    @property
    def domain(self) -> str:
        """``"discrete"``."""
        return "discrete"

    def _contains(self, val: torch.Tensor) -> bool:
        return val.dtype is torch.bool or bool(((val == 0) | (val == 1)).all())

    def _nearest(self, val: torch.Tensor) -> torch.Tensor:
        if val.dtype.is_floating_point:
            return (val > 0.5).to(self._dtype)
        return (val if val.dtype is torch.bool else val.to(torch.int64) >= 1).to(self._dtype)

    def _draw(self, lead: torch.Size, generator: torch.Generator | None, device: torch.device) -> torch.Tensor:
        last = torch.tensor(1, device=CPU)
        return sampling.integers(
            torch.zeros_like(last), last, self._full(lead), dtype=self._dtype, generator=generator, device=device
        )

    def _domain_text(self) -> str:
        return "zeros and ones"

    def index(self, index: torch.Tensor, tensor_to_index: torch.Tensor) -> torch.Tensor:
        """Pick the entries where ``index`` is one: rows ``[..., n]`` with k ones each give ``[..., k]``.

        Raises:
            SpecError: rows have different numbers of ones, or the shapes do not fit each other.
        """
        self._check_choices(index, tensor_to_index, tuple(index.shape[:-1]), index.shape[-1])
        hot = index.to(torch.bool)
        counts = hot.sum(-1)
        if counts.numel() and bool((counts != counts.flatten()[0]).any()):
            raise SpecError("Binary.index: expected rows with equal numbers of ones, found different ones.")
        return tensor_to_index.expand(hot.shape)[hot].view(*hot.shape[:-1], -1 if counts.numel() else 0)

    def cardinality(self) -> int:
        """Return the number of different rows, ``2 ** n``."""
        return int(2 ** abs(self.n))

    def enumerate(self, use_mask: bool = False) -> torch.Tensor:
        """Return every row, ``[2 ** n, *shape]``, all rows of a datum alike.

        Raises:
            NotSupported: there are more than 2**24.
        """
        if self.n > 24:
            raise self._unsupported("enumerate", f"it has 2**{self.n} data")
        n = abs(self.n)
        where = self._device or CPU
        bits = torch.arange(2**n, device=where).unsqueeze(-1) >> torch.arange(n - 1, -1, -1, device=where)
        rows = (bits & 1).to(self._dtype)
        if not self._shape:
            return rows.squeeze(-1)
        size = shapes.static(self._shape)
        return rows.view(-1, *[1] * (self.ndim - 1), n).expand(-1, *size).clone()
