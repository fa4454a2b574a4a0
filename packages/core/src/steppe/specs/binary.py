"""Binary: zeros and ones."""

from __future__ import annotations

import torch

from steppe.errors import SpecError

from . import shapes
from .action_decoders import ActionDecoder, Refuse, decode_arrays
from .base import DeviceLike
from .categorical import Categorical
from .dtypes import DTypeLike
from .shapes import ShapeLike

__all__ = ["Binary"]


class Binary(Categorical):
    """Zero or one, independently for every element of a shape: a Categorical of two for each of them.

    Args:
        n: last size of the shape; by default the one of ``shape``. The attribute ``n`` is 2, the number of categories.
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
        dtype: DTypeLike = torch.int8,
    ) -> None:
        if n is None and shape is None:
            raise SpecError("Binary: expected n or shape, found neither.")
        super().__init__(2, (n or 0,) if shape is None else shape, device, dtype)
        if n is not None and (self._shape[-1] not in (n, -1) if self._shape else n != 0):
            raise SpecError(f"Binary: expected a shape whose last size is n={n}, found {tuple(self._shape)}.")

    def _width(self) -> int:
        """Return the last size; 1 if the shape is empty or the size is dynamic."""
        return abs(self._shape[-1]) if self._shape else 1

    def _counts_text(self) -> str:
        return ""

    def action_decoder(self, refuse: Refuse) -> ActionDecoder:
        """Decode actions into arrays."""
        return decode_arrays(self._shape, self._dtype)

    def action_text(self) -> str:
        """Return the two values."""
        return "0 or 1"

    def index(self, index: torch.Tensor, tensor_to_index: torch.Tensor) -> torch.Tensor:
        """Select the entries where ``index`` is one: rows ``[..., n]`` with k ones each give ``[..., k]``.

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
        """Return the number of different rows, ``2 ** n`` for rows of ``n``."""
        return int(2 ** self._width())

    def enumerate(self, use_mask: bool = False) -> torch.Tensor:
        """Return all rows ``[2 ** n, *shape]``, the same along batch dimensions.

        Raises:
            NotSupported: there are more than 2**24 rows, or the mask differs along batch dimensions.
        """
        mask = self._mask if use_mask else None
        if mask is not None and self._shape:
            mask = mask.flatten(-2)
        return self._listed(mask, [2] * self._width(), shapes.static(self._shape[-1:]))
