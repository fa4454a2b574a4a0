"""One choice among ``n``, as a number."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import torch

from steppe.errors import NotSupported, SpecError

from . import masks, sampling, shapes
from .action_checks import ArrayCheck, NumberCheck, check_below
from .action_decoders import ActionDecoder, Refuse, decode_arrays, decode_number
from .base import ChoiceForm, DeviceLike, Spec
from .boxes import CategoricalBox
from .discrete import Discrete, is_whole, most_categories, one_hot, whole
from .dtypes import CPU, DTypeLike
from .leaf import Leaf
from .masks import MaskLike
from .shapes import Change, ShapeLike

if TYPE_CHECKING:
    from typing_extensions import Self

    from .one_hot import OneHot

__all__ = ["Categorical"]


_NO_LEAD = torch.Size(())


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

    def __init__(
        self,
        n: int,
        shape: ShapeLike = (),
        device: DeviceLike = None,
        dtype: DTypeLike = torch.int64,
        mask: MaskLike = None,
    ) -> None:
        super().__init__(shape=shape, device=device, dtype=dtype)
        self._n = _count(n, self)
        self._provisional: int | None = None
        self.update_mask(mask)

    @property
    def n(self) -> int:
        """Number of categories, or the provisional one.

        Raises:
            NotSupported: the number is unknown. ``space.n`` is -1 then.
        """
        return self._known_n("n")

    @property
    def _n_now(self) -> int:
        """The number of categories; -1 if unknown."""
        return self._n if self._n >= 0 or self._provisional is None else self._provisional

    @property
    def space(self) -> CategoricalBox:
        """The categories, as a CategoricalBox."""
        return CategoricalBox(self._n_now)

    def set_provisional_n(self, n: int) -> None:
        """Set the number of categories of a spec with ``n=-1``, in place. It may be set again.

        Raises:
            SpecError: the spec was made with another number.
        """
        if self._n >= 0 and n != self._n:
            raise SpecError(f"Categorical: n is {self._n} already, and cannot be {n} for now.")
        self._provisional = _count(n, self)

    def _known_n(self, what: str) -> int:
        if self._n_now < 0:
            raise NotSupported(f"Categorical.{what} needs the number of categories: call set_provisional_n(n) first.")
        return self._n_now

    def _contains(self, val: torch.Tensor) -> bool:
        if not is_whole(val):
            return False
        index = val.to(torch.int64)
        if bool((index < 0).any()) or (self._n_now >= 0 and bool((index >= self._n_now).any())):
            return False
        if self._mask is None:
            return True
        mask = masks.allowed(self._mask).to(val.device).expand(*index.shape, self._n_now)
        return bool(mask.gather(-1, index.unsqueeze(-1)).all())

    def _nearest(self, val: torch.Tensor) -> torch.Tensor:
        index = whole(val).clamp(min=0)
        if self._n_now >= 0:
            self._check_any(val, "project")
            index = index.clamp(max=self._n_now - 1)
        if self._mask is not None:
            index = masks.nearest(index, self._mask)
        return index.to(self._dtype)

    def _draw(self, lead: torch.Size, generator: torch.Generator | None, device: torch.device) -> torch.Tensor:
        n = self._known_n("rand")
        if n == 0:
            return self._check_any(torch.zeros(self._full(lead), dtype=self._dtype, device=device), "rand")
        if self._mask is not None:
            return masks.draw(self._mask, lead, generator=generator, device=device).to(self._dtype)
        last = torch.tensor(n - 1, device=CPU)
        return sampling.integers(
            torch.zeros_like(last), last, self._full(lead), dtype=self._dtype, generator=generator, device=device
        )

    def _domain_text(self) -> str:
        if self._mask is not None:
            return f"categories from 0 to {self._n_now - 1} that the mask allows"
        if self._n_now == 0:
            return "no data, as there is no category"
        return f"categories from 0 to {self._n_now - 1}" if self._n_now > 0 else "categories of 0 or more"

    def _check_any(self, data: torch.Tensor, what: str) -> torch.Tensor:
        """Return ``data``; without categories, only empty data is valid."""
        if self._n_now == 0 and data.numel():
            raise self._unsupported(what, "it has no category")
        return data

    def _change(self, change: Change) -> Spec:
        out = super()._change(change)
        if self._mask is None:
            return out
        return self._with(_shape=out.shape, _mask=masks.moved(self._mask, shapes.positions(self._shape, change)))

    def _to_dtype(self, dtype: torch.dtype) -> Self:
        out = self._with(_dtype=dtype)
        _count(self._n, out)
        return out

    def to_one_hot(self, val: torch.Tensor, safe: bool | None = None) -> torch.Tensor:
        """Return categories ``[..., *shape]`` as one-hot rows ``[..., *shape, n]``, bool.

        Args:
            val: data of the spec, with any leading dimensions.
            safe: check first that it is in the spec.
        """
        self._check_if(safe, val)
        return one_hot(val.to(torch.int64), self._known_n("to_one_hot"), dtype=torch.bool)

    def to_categorical(self, val: torch.Tensor, safe: bool | None = None) -> torch.Tensor:
        """Return ``val``, which is categorical already."""
        self._check_if(safe, val)
        return val

    def to_one_hot_spec(self) -> OneHot:
        """Return the spec of the same choice as one-hot rows, ``[*shape, n]`` bool."""
        from .one_hot import OneHot

        n = self._known_n("to_one_hot_spec")
        return OneHot(n, (*self._shape, n), self._device, torch.bool, mask=self._mask)

    def to_categorical_spec(self) -> Self:
        """Return a copy."""
        return self.clone()

    def index(self, index: torch.Tensor, tensor_to_index: torch.Tensor) -> torch.Tensor:
        """Select an entry of each row: categories ``[...]`` and a tensor ``[..., n]`` give ``[...]``.

        Categories ``[..., k]`` and a tensor ``[..., n]`` with the same leading dimensions give ``[..., k]``.

        Raises:
            SpecError: the shapes do not fit each other.
        """
        if index.ndim and tensor_to_index.ndim == index.ndim and tensor_to_index.shape[:-1] == index.shape[:-1]:
            return tensor_to_index.gather(-1, index.to(torch.int64))
        if self._n_now >= 0:
            self._check_choices(index, tensor_to_index, tuple(index.shape), self._n_now)
        rows = tensor_to_index.expand(*index.shape, tensor_to_index.shape[-1])
        return rows.gather(-1, index.to(torch.int64).unsqueeze(-1)).squeeze(-1)

    def cardinality(self) -> int:
        """Return the number of categories."""
        return self._known_n("cardinality")

    def enumerate(self, use_mask: bool = False) -> torch.Tensor:
        """Return all categories ``[n, *shape]``, the same for all elements."""
        n = self._known_n("enumerate")
        each = masks.allowed_categories(self._mask, n, use_mask=use_mask, device=self._device).to(self._dtype)
        return each.view(-1, *[1] * self.ndim).expand(-1, *shapes.static(self._shape)).clone()

    def bounds(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Return 0 and the last category for each element; see :meth:`Spec.bounds`."""
        return self._filled(_NO_LEAD, 0), self._filled(_NO_LEAD, max(self.n - 1, 0))

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
        """Decode actions of one element into numbers, others into arrays."""
        if self._shape.numel() != 1:
            return decode_arrays(self._shape, self._dtype)
        in_lists = not self._shape and not self._dtype.is_floating_point
        return decode_number(self._n_now, refuse, in_lists=in_lists)

    def action_text(self) -> str:
        """Return the range of the categories."""
        return f"a whole number from 0 to {self.n - 1}"

    def shape_hint(self, value: torch.Tensor, expected: tuple[int, ...], name: str) -> str:
        """Suggest how to make numbers of one-hot rows or logits."""
        if value.shape[:-1] != expected:
            return ""
        number, last = value.int() if value.dtype is torch.bool else value, value.shape[-1]
        if bool(((number != 0).sum(-1) == 1).all()) and bool((number.sum(-1) == 1).all()) and last == self._n_now:
            convert = "action.int().argmax(-1)" if value.dtype is torch.bool else "action.argmax(-1)"
            return f" Make numbers of one-hot rows with {convert}."
        if last == 1:
            return " Numbers have no dimension of their own: write action.squeeze(-1)."
        if value.dtype.is_floating_point and last == self._n_now:
            return (
                " Pick the category with the largest of these logits with action.argmax(-1), or draw one: "
                "CategoricalActor(module, one_hot=False)."
            )
        return ""

    def choice_hint(self, value: torch.Tensor, name: str) -> str:
        """Suggest the nearest category."""
        return f" Take the nearest category with {name}.project(action)."

    def _same(self, other: Self) -> bool:
        return super()._same(other) and (self._n, self._n_now) == (other._n, other._n_now)

    def _mask_shape(self) -> torch.Size:
        return torch.Size((*self._shape, self._n_now))

    def _counts_text(self) -> list[str]:
        return [f"n={self._n_now}"]


def _count(n: int, spec: Leaf) -> int:
    """Return the number of categories.

    Raises:
        SpecError: the dtype of the spec cannot represent it.
    """
    if n < -1:
        raise SpecError(f"{type(spec).__name__}: expected 0 or more categories, or -1 for unknown, found n={n}.")
    if n > most_categories(spec.dtype):
        raise SpecError(f"{type(spec).__name__}: {spec.dtype} cannot number {n} categories. Use torch.int64.")
    return int(n)
