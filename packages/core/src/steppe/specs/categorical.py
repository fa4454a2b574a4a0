"""One choice among ``n``, as a number."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import torch

from steppe.errors import SpecError

from . import category_masks, shapes
from .action_checks import ArrayCheck, NumberCheck, check_below
from .action_decoders import ActionDecoder, Refuse, decode_number
from .base import ChoiceForm, DeviceLike
from .category_masks import MaskLike
from .discrete import Discrete, is_whole, most_categories, whole
from .dtypes import DTypeLike
from .leaf import Leaf
from .shapes import ShapeLike

if TYPE_CHECKING:
    from typing_extensions import Self

    from .one_hot import OneHot

__all__ = ["Categorical", "count_of"]


class Categorical(Discrete):
    """One of ``n`` categories, as a number from 0 to ``n - 1``, for every element of a shape.

    Args:
        n: number of categories; -1 if it is not known yet (see :meth:`set_provisional_n`). With 0, no value is valid.
        shape: shape of the data.
        device: device of the data, or None.
        dtype: dtype of the data; ``torch.bool`` with ``n=2`` for flags.
        mask: bool tensor that broadcasts to ``[*shape, n]``, True for allowed categories. A row without an allowed
            category restricts nothing.

    Raises:
        SpecError: the dtype cannot represent ``n`` categories, or the mask does not fit.
    """

    choice_form: ClassVar[ChoiceForm] = "categorical"
    _default_dtype = torch.int64

    _n: int
    """Number of categories; of several choices, the largest one."""
    _provisional: int | None = None

    def __init__(
        self,
        n: int,
        shape: ShapeLike = (),
        device: DeviceLike = None,
        dtype: DTypeLike = torch.int64,
        mask: MaskLike = None,
    ) -> None:
        super().__init__(shape=shape, device=device, dtype=dtype)
        self._n = count_of(n, self)
        self.update_mask(mask)

    @property
    def _n_now(self) -> int:
        """The number of categories; -1 if unknown."""
        return self._n if self._n >= 0 or self._provisional is None else self._provisional

    def set_provisional_n(self, n: int) -> None:
        """Set the number of categories of a spec with ``n=-1``, in place. It may be set again.

        Raises:
            SpecError: the spec was made with another number.
        """
        if self._n >= 0 and n != self._n:
            raise SpecError(f"Categorical: n is {self._n} already, and cannot be {n} for now.")
        self._provisional = count_of(n, self)

    def _check_flat(self, what: str) -> None:
        """Raise NotSupported unless the categories of all choices can lie end to end in one row."""

    @property
    def _parts(self) -> list[int]:
        return [self._n_now]

    def _number_shape(self) -> torch.Size:
        return self._shape

    def _contains(self, val: torch.Tensor) -> bool:
        if not is_whole(val):
            return False
        index = val.to(torch.int64)
        if not bool(((index >= 0) & (index <= self._last(val.device))).all()):
            return False
        return self._mask is None or category_masks.allows(self._mask, self._parts, self._columns(index))

    def _nearest(self, val: torch.Tensor) -> torch.Tensor:
        self._check_any("project", val.numel())
        index = whole(val).clamp(min=0).clamp(max=self._last(val.device))
        if self._mask is not None:
            index = self._from_columns(category_masks.nearest(self._mask, self._parts, self._columns(index)))
        return index.to(self._dtype)

    def _draw(self, lead: torch.Size, generator: torch.Generator | None, device: torch.device) -> torch.Tensor:
        self._known_n("rand")
        return self._draw_numbers(lead, generator, device, self._dtype)

    def _to_dtype(self, dtype: torch.dtype) -> Self:
        out = self._with(_dtype=dtype)
        count_of(self._n, out)
        return out

    def to_one_hot(self, val: torch.Tensor, safe: bool | None = None) -> torch.Tensor:
        """Return categories ``[..., *shape]`` as one-hot vectors ``[..., *shape, n]``, bool.

        Numbers of several choices, ``[..., k]``, give rows end to end, ``[..., sum(nvec)]``.

        Args:
            val: data of the spec, with any leading dimensions.
            safe: check first that it is in the spec.

        Raises:
            NotSupported: ``n`` is unknown, or ``nvec`` is nested. Convert the parts of ``spec.unbind(-2)``.
        """
        self._known_n("to_one_hot")
        self._check_flat("to_one_hot")
        self._check_if(safe, val)
        return self._one_hot(val.to(torch.int64), torch.bool)

    def to_categorical(self, val: torch.Tensor, safe: bool | None = None) -> torch.Tensor:
        """Return ``val``, which is categorical already."""
        self._check_if(safe, val)
        return val

    def to_one_hot_spec(self) -> OneHot:
        """Return the spec of the same choice as one-hot vectors, ``[*shape, n]`` bool."""
        from .one_hot import OneHot

        n = self._known_n("to_one_hot_spec")
        return OneHot(n, (*self._shape, n), self._device, torch.bool, mask=self._mask)

    def to_categorical_spec(self) -> Self:
        """Return a copy."""
        return self.clone()

    def index(self, index: torch.Tensor, tensor_to_index: torch.Tensor) -> torch.Tensor:
        """Select an entry of each row: categories ``[...]`` and a tensor ``[..., n]`` give ``[...]``.

        Categories ``[..., k]`` and a tensor ``[..., n]`` with the same leading dimensions give ``[..., k]``; so do the
        numbers of several choices, ``[..., k]``, and a tensor ``[..., sum(nvec)]``.

        Raises:
            NotSupported: ``nvec`` is nested.
            SpecError: the shapes do not fit each other.
        """
        index, entries = index.to(torch.int64), tensor_to_index
        if not self._several and index.ndim and entries.ndim == index.ndim and entries.shape[:-1] == index.shape[:-1]:
            return entries.gather(-1, index)
        self._check_flat("index")
        numbers = self._columns(index)
        rows = tuple(numbers.shape[:-1])
        if self._n_now >= 0:
            self._check_choices(index, entries, rows, sum(self._parts))
        picked = entries.expand(*rows, entries.shape[-1]).gather(-1, category_masks.in_row(numbers, self._parts))
        return self._from_columns(picked)

    def cardinality(self) -> int:
        """Return the number of categories; of several choices, the product of their numbers."""
        self._known_n("cardinality")
        return super().cardinality()

    def enumerate(self, use_mask: bool = False) -> torch.Tensor:
        """Return all choices, ``[cardinality, *shape]``: of several, all combinations. Batch dimensions repeat them."""
        return self._listed(self._mask if use_mask else None, self._parts, self._event_shape())

    def _listed(self, mask: torch.Tensor | None, parts: list[int], event: torch.Size) -> torch.Tensor:
        """Return all combinations of categories, ``[n, *batch, *event]``, repeated along batch dimensions."""
        self._check_countable(self.cardinality())
        rows = shapes.combinations(category_masks.allowed_categories(mask, parts)).to(self._device, self._dtype)
        batch = shapes.static(self._shape[: self.ndim - len(event)])
        return rows.view(len(rows), *[1] * len(batch), *event).expand(-1, *batch, *event).clone()

    def bounds(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Return 0 and the last category of each choice; see :meth:`Spec.bounds`."""
        self._known_n("bounds")
        low = self.zero()
        return low, (low + self._last(low.device)).clamp(min=0).to(self._dtype)

    def array_check(self) -> ArrayCheck | None:
        """Check that numbers are categories; None if their number is unknown, and for flags."""
        return None if self._n_now < 0 or self._dtype is torch.bool else check_below(self._n_now)

    def number_check(self) -> NumberCheck | None:
        """Check that one number is a category; None for other shapes."""
        if self._shape or self._n_now <= 0 or self._dtype is torch.bool:
            return None
        last = self._n_now - 1
        return lambda number: 0 <= number <= last and number == int(number)

    def action_decoder(self, refuse: Refuse) -> ActionDecoder:
        """Decode a single choice into its number, several into arrays."""
        if self._several or self._shape.numel() != 1:
            return super().action_decoder(refuse)
        in_lists = not self._shape and not self._dtype.is_floating_point
        return decode_number(self._n_now, refuse, in_lists=in_lists)

    def action_text(self) -> str:
        """Return the range of the categories."""
        if self._n_now == 0:
            return "no data, as there is no category"
        return f"a whole number from 0 to {self._n_now - 1}" if self._n_now > 0 else "a whole number of 0 or more"

    def action_hint(self, value: torch.Tensor, expected: tuple[int, ...], name: str) -> str:
        """Suggest the nearest category, or how to make numbers of one-hot vectors or logits."""
        if value.shape == expected:
            return f" Take the nearest category with {name}.project(action)."
        if value.shape[:-1] != expected:
            return ""
        number, last = value.int() if value.dtype is torch.bool else value, value.shape[-1]
        if bool(((number != 0).sum(-1) == 1).all()) and bool((number.sum(-1) == 1).all()) and last == self._n_now:
            convert = "action.int().argmax(-1)" if value.dtype is torch.bool else "action.argmax(-1)"
            return f" Make numbers of one-hot vectors with {convert}."
        if last == 1:
            return " Numbers have no dimension of their own: write action.squeeze(-1)."
        if value.dtype.is_floating_point and last == self._n_now:
            return (
                " Pick the category with the largest of these logits with action.argmax(-1), or draw one: "
                "CategoricalActor(module, one_hot=False)."
            )
        return ""

    def _same(self, other: Self) -> bool:
        return super()._same(other) and self._n == other._n


def count_of(n: int, spec: Leaf) -> int:
    """Return the number of categories.

    Raises:
        SpecError: the dtype of the spec cannot represent it.
    """
    if n < -1:
        raise SpecError(f"{type(spec).__name__}: expected 0 or more categories, or -1 for unknown, found n={n}.")
    if n > most_categories(spec.dtype):
        raise SpecError(f"{type(spec).__name__}: {spec.dtype} cannot number {n} categories. Use torch.int64.")
    return int(n)
