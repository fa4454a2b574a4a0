"""Discrete: the base class of specs of choices among categories, as numbers or as one-hot vectors."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar

import torch

from steppe.errors import NotSupported

from . import category_masks, sampling, shapes
from .base import Spec
from .boxes import BoxList, CategoricalBox
from .category_masks import MaskLike
from .dtypes import CPU
from .leaf import Leaf
from .masked_choice import MaskedChoice
from .shapes import Change

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["Discrete", "is_whole", "most_categories", "whole"]

_LARGEST = torch.iinfo(torch.int64).max


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
    if not val.dtype.is_floating_point:
        return val.to(torch.int64)
    return val.double().nan_to_num().round().clamp(-1, 2**62).to(torch.int64)  # larger numbers have no int64


def is_whole(val: torch.Tensor) -> bool:
    """Whether all values are whole numbers."""
    return not val.dtype.is_floating_point or bool((val == val.round()).all())


class Discrete(Leaf):
    """Base of the specs of choices: of one (Categorical, OneHot, Binary) or of several (MultiCategorical, MultiOneHot).

    A choice has a number, the one of its category. Several choices are a row of single ones. The methods below take
    numbers ``[..., k]`` of ``k`` choices; a single choice has ``k = 1``, which the data does not show.
    """

    _tensors = ("_mask",)
    _mask: torch.Tensor | None = None
    _several: ClassVar[bool] = False
    """Whether the numbers of choices have a last dimension for the choices."""

    @property
    def n(self) -> int:
        """Number of categories, or the provisional one.

        Raises:
            AttributeError: there are several choices, see ``nvec``.
            NotSupported: the number is unknown. ``space.n`` is -1 then.
        """
        if self._several:
            raise AttributeError(
                f"{type(self).__name__} has no n: each choice has its own number of categories, see nvec."
            )
        return self._known_n("n")

    def _known_n(self, what: str) -> int:
        n = self._parts[0]
        if n < 0:
            raise NotSupported(
                f"{type(self).__name__}.{what} needs the number of categories: call set_provisional_n(n) first."
            )
        return n

    # Defined by subclasses ----------------------------------------------------------------------------------------

    @property
    @abstractmethod
    def _parts(self) -> list[int]:
        """The number of categories of each choice."""

    @abstractmethod
    def _number_shape(self) -> torch.Size:
        """Return the shape of the data as category numbers."""

    def _check_shape(self) -> None:
        """Raise a SpecError unless the numbers of categories fit the shape."""

    def _event_shape(self) -> torch.Size:
        """Return the last sizes of the shape: the numbers of categories or choices. They are fixed."""
        return torch.Size(())

    @abstractmethod
    def action_text(self) -> str:
        """Describe the valid choices, those that the mask excludes included."""

    def _domain_text(self) -> str:
        return self.action_text() if self._mask is None else f"{self.action_text()} that the mask allows"

    # Numbers of choices -------------------------------------------------------------------------------------------

    def _last(self, device: torch.device) -> torch.Tensor | int:
        """Return the last category of each choice."""
        if self._several:
            return torch.tensor(self._parts, device=device) - 1
        (n,) = self._parts
        return n - 1 if n >= 0 else _LARGEST

    def _counts_text(self) -> str:
        """Return the numbers of categories for ``repr``."""
        return f"nvec={self._parts}" if self._several else f"n={self._parts[0]}"

    def _columns(self, numbers: torch.Tensor) -> torch.Tensor:
        """Return data as numbers with a last dimension for the choices."""
        return numbers if self._several else numbers.unsqueeze(-1)

    def _from_columns(self, columns: torch.Tensor) -> torch.Tensor:
        return columns if self._several else columns.squeeze(-1)

    def _draw_numbers(
        self, lead: torch.Size, generator: torch.Generator | None, device: torch.device, dtype: torch.dtype
    ) -> torch.Tensor:
        """Draw numbers ``[*lead, *number_shape]``."""
        size = torch.Size((*lead, *shapes.static(self._number_shape())))
        self._check_any("rand", size.numel())
        if self._mask is not None:
            drawn = category_masks.draw(self._mask, self._parts, lead, generator=generator, device=device)
            return self._from_columns(drawn).to(dtype)
        if not size.numel():
            return torch.zeros(size, dtype=dtype, device=device)
        last = self._last(CPU)
        if isinstance(last, int):
            return torch.randint(0, last + 1, size, generator=generator, device=device).to(dtype)
        last = shapes.compress(last)
        return sampling.integers(torch.zeros_like(last), last, size, dtype=dtype, generator=generator, device=device)

    def _one_hot(self, numbers: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        """Convert numbers to one-hot vectors, end to end."""
        columns = self._columns(numbers)
        out = torch.zeros((*columns.shape[:-1], sum(self._parts)), dtype=dtype, device=numbers.device)
        return out.scatter_(-1, category_masks.in_row(columns, self._parts), 1)

    def _check_any(self, what: str, size: int) -> None:
        """Raise NotSupported for ``size`` choices, if one of them is among no categories."""
        if size and 0 in self._parts:
            raise self._unsupported(what, f"it has no category for a choice: {self._counts_text()}")

    @property
    def space(self) -> Any:
        """The categories, as a CategoricalBox; for several choices, a BoxList."""
        boxes = [CategoricalBox(n) for n in self._parts]
        return BoxList(boxes) if self._several else boxes[0]

    def cardinality(self) -> int:
        """Return the product of the numbers of categories."""
        return int(shapes.product(self._parts))

    def masked_choice(self, shape: torch.Size) -> MaskedChoice | None:
        """Return a :class:`~steppe.specs.masked_choice.MaskedChoice`, which draws choices under masks of a shape."""
        return MaskedChoice(self, torch.Size(shape), self._parts if self._several else None)

    def from_numbers(self, numbers: torch.Tensor) -> torch.Tensor:
        """Return category numbers ``[*lead, *number_shape]`` as data of this spec."""
        return numbers.to(self.dtype)

    # Domain, mask and shapes --------------------------------------------------------------------------------------

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
        self._mask = (
            None if mask is None else category_masks.checked(mask, self._mask_shape(), name=name, device=self._device)
        )

    def _mask_shape(self) -> torch.Size:
        """Return the shape of a mask, which has an entry for each category in the last dimension."""
        rows = self._number_shape()
        return torch.Size((*(rows[:-1] if self._several else rows), sum(self._parts)))

    def _moved_mask(self, change: Change) -> torch.Tensor | None:
        """Return the mask after a shape operation that keeps the dimension of categories or choices."""
        if self._mask is None:
            return None
        if not self._event_shape():
            return category_masks.moved(self._mask, shapes.positions(self._shape, change))
        rows = shapes.positions(self._shape[:-1], lambda t: change(t.unsqueeze(-1).expand(self._shape))[..., 0])
        return category_masks.moved(self._mask, rows)

    def _change(self, change: Change) -> Spec:
        event = self._event_shape()
        if event and (len(event) > 1 or not shapes.event_survives(self._shape, change)):
            return self._change_event(change)
        return self._with(_shape=shapes.shape_after(self._shape, change), _mask=self._moved_mask(change))

    def _change_event(self, change: Change) -> Spec:
        """Return the spec after an operation that changes the numbers of categories or choices."""
        raise IndexError(
            f"The last dimension of a {type(self).__name__} of shape {tuple(self._shape)} holds the categories: it "
            f"cannot be indexed, resized or moved."
        )

    def _resize(self, shape: torch.Size) -> None:
        other = self._with(_shape=shape)
        other._check_shape()
        other.update_mask(None if self._mask is None else category_masks.compressed(self._mask))
        self._shape, self._mask = shape, other._mask

    def make_neg_dim(self, dim: int) -> Self:
        """Make the size at ``dim`` dynamic, in place; return the spec.

        Raises:
            NotSupported: the dimension holds categories, or there is a mask.
        """
        at = shapes.normal_dim(dim, self.ndim, what=type(self).__name__)
        if self._mask is not None or at >= self.ndim - len(self._event_shape()):
            raise self._unsupported("make_neg_dim", "a mask and the categories need static sizes")
        return super().make_neg_dim(dim)

    def _arguments(self) -> list[str]:
        return [text for text in (self._counts_text(), "mask=..." if self._mask is not None else "") if text]

    def _same(self, other: Self) -> bool:
        return super()._same(other) and self._parts == other._parts
