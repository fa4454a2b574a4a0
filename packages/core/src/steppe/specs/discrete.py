"""Discrete: the base class of specs of categories, and conversions between numbers and one-hot rows."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch

from . import masks, shapes
from .dtypes import CPU
from .leaf import Leaf
from .masks import MaskLike
from .shapes import Change

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["Discrete", "is_whole", "most_categories", "one_hot", "one_hot_parts", "starts", "whole"]


def most_categories(dtype: torch.dtype) -> int | float:
    """Return the largest number of categories that a dtype can represent."""
    if dtype is torch.bool:
        return 2
    if dtype.is_floating_point:
        # All integers up to this one are exact.
        return 2.0 / torch.finfo(dtype).eps
    return torch.iinfo(dtype).max + 1


def whole(val: torch.Tensor) -> torch.Tensor:
    """Round category numbers of any dtype to int64."""
    return val.nan_to_num().round().to(torch.int64) if val.dtype.is_floating_point else val.to(torch.int64)


def is_whole(val: torch.Tensor) -> bool:
    """Whether all values are whole numbers."""
    return not val.dtype.is_floating_point or bool((val == val.round()).all())


def one_hot(index: torch.Tensor, n: int, *, dtype: torch.dtype) -> torch.Tensor:
    """Return one-hot rows ``[*index.shape, n]``."""
    out = torch.zeros((*index.shape, n), dtype=dtype, device=index.device)
    return out.scatter_(-1, index.unsqueeze(-1), 1)


def starts(parts: Sequence[int]) -> torch.Tensor:
    """Return the offset of each choice in the last dimension of one-hot rows."""
    return torch.tensor([0, *parts[:-1]], device=CPU).cumsum(0)


def one_hot_parts(index: torch.Tensor, parts: Sequence[int], *, dtype: torch.dtype) -> torch.Tensor:
    """Convert numbers ``[..., k]`` of several choices to one-hot rows end to end, ``[..., sum(parts)]``."""
    out = torch.zeros((*index.shape[:-1], sum(parts)), dtype=dtype, device=index.device)
    return out.scatter_(-1, index + starts(parts).to(index.device), 1)


class Discrete(Leaf):
    """Base of Categorical and OneHot, and so of Binary, MultiCategorical and MultiOneHot."""

    _tensors = ("_mask",)
    _mask: torch.Tensor | None = None

    # Defined by subclasses ----------------------------------------------------------------------------------------

    @abstractmethod
    def _mask_shape(self) -> torch.Size:
        """Return the shape of a mask, which has an entry for each category in the last dimension."""

    @abstractmethod
    def _counts_text(self) -> list[str]:
        """Return the numbers of categories for ``repr``."""

    def _check_shape(self) -> None:
        """Raise a SpecError unless the numbers of categories fit the shape."""

    def _category_dims(self) -> int:
        """Return the number of last dimensions that hold categories or choices; their sizes are fixed."""
        return 0

    # -------------------------------------------------------------------------------------------------------------

    @property
    def domain(self) -> str:
        """``"discrete"``."""
        return "discrete"

    @property
    def mask(self) -> torch.Tensor | None:
        """Which categories are allowed, bool, with categories in the last dimension; None for all."""
        return self._mask

    def update_mask(self, mask: MaskLike) -> None:
        """Set or remove the mask, in place.

        Args:
            mask: bool tensor that broadcasts to the mask shape in the documentation of the class, or None.
        """
        name = type(self).__name__
        self._mask = None if mask is None else masks.checked(mask, self._mask_shape(), name=name, device=self._device)

    def _mask_of_rows(self, change: Change) -> torch.Tensor | None:
        """Return the mask after a shape operation that keeps the last dimension."""
        if self._mask is None:
            return None
        rows = shapes.positions(self._shape[:-1], lambda t: change(t.unsqueeze(-1).expand(self._shape))[..., 0])
        return masks.moved(self._mask, rows)

    def _resize(self, shape: torch.Size) -> None:
        other = self._with(_shape=shape)
        other._check_shape()
        other.update_mask(None if self._mask is None else masks.compressed(self._mask))
        self._shape, self._mask = shape, other._mask

    def make_neg_dim(self, dim: int) -> Self:
        """Make the size at ``dim`` dynamic, in place; return the spec.

        Raises:
            NotSupported: the dimension holds categories, or there is a mask.
        """
        at = shapes.normal_dim(dim, self.ndim, what=type(self).__name__)
        if self._mask is not None or at >= self.ndim - self._category_dims():
            raise self._unsupported("make_neg_dim", "a mask and the categories need static sizes")
        return super().make_neg_dim(dim)

    def _arguments(self) -> list[str]:
        return [*self._counts_text(), *(["mask=..."] if self._mask is not None else [])]
