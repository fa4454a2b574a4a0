"""One choice among ``n``, as a one-hot vector."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import torch

from steppe.arguments import ignored_argument
from steppe.errors import SpecError

from . import category_masks, shapes
from .action_checks import PYTHON_LIMIT, ArrayCheck, NumberCheck, check_one_hot
from .action_decoders import ActionDecoder, Refuse, decode_arrays, decode_one_hot
from .base import ChoiceForm, DeviceLike, Key, Rows, named
from .categorical import Categorical
from .category_masks import MaskLike
from .discrete import Discrete, is_whole, whole
from .dtypes import DTypeLike
from .leaf import in_shape, one_element, shape_fault
from .shapes import ShapeLike

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["OneHot"]


class OneHot(Discrete):
    """One of ``n`` categories, as a row with a single one in the last dimension.

    ``zero`` and ``one`` are not valid choices. The last dimension cannot be indexed, split or joined: an index applies
    to the dimensions before it.

    Args:
        n: number of categories.
        shape: shape of the data, whose last size is ``n``; ``[n]`` by default.
        device: device of the data, or None.
        dtype: dtype of the data.
        use_register: ignored, with a warning; programs for TorchRL pass it.
        mask: bool tensor that broadcasts to ``shape``, True where a category is allowed. A row without an
            allowed category restricts nothing.

    Attributes:
        use_register: the argument.

    Raises:
        SpecError: the last size of the shape is not ``n``, or the mask does not fit.
    """

    choice_form: ClassVar[ChoiceForm] = "one_hot"
    _default_dtype = torch.bool
    #: Name of the last size in errors.
    _width = "the number of categories"
    _parts: list[int] = []

    def __init__(
        self,
        n: int,
        shape: ShapeLike | None = None,
        device: DeviceLike = None,
        dtype: DTypeLike = torch.bool,
        use_register: bool = False,
        mask: MaskLike = None,
    ) -> None:
        super().__init__(shape=(int(n),) if shape is None else shape, device=device, dtype=dtype)
        if use_register:
            ignored_argument(type(self).__name__, "use_register", "numbers are encoded as the categories they name")
        self.use_register = bool(use_register)
        if not self._several:
            self._parts = [int(n)]
        self._check_shape()
        self.update_mask(mask)

    def _check_shape(self) -> None:
        width = sum(self._parts)
        if width < 0 or not self._shape or self._shape[-1] != width:
            raise SpecError(
                f"{type(self).__name__}: expected a shape whose last size is {self._width} = {width}, found "
                f"{tuple(self._shape)}."
            )

    def _event_shape(self) -> torch.Size:
        return self._shape[-1:]

    def _number_shape(self) -> torch.Size:
        return torch.Size((*self._shape[:-1], len(self._parts))) if self._several else self._shape[:-1]

    # Overridden by MultiOneHot ----------------------------------------------------------------

    def to_categorical(self, val: torch.Tensor, safe: bool | None = None) -> torch.Tensor:
        """Return rows ``[..., n]`` as category numbers ``[...]``, int64.

        Rows of several choices, ``[..., sum(nvec)]``, give a number for each choice, ``[..., k]``.

        Args:
            val: data of the spec, with any leading dimensions.
            safe: check first that it is in the spec.
        """
        self._check_if(safe, val)
        return self._numbers(val)

    def to_categorical_spec(self) -> Categorical:
        """Return the spec of the same choice as numbers, ``[*shape[:-1]]`` int64."""
        return Categorical(self.n, self._shape[:-1], self._device, torch.int64, self._mask)

    def action_decoder(self, refuse: Refuse) -> ActionDecoder:
        """Decode one row into its category; several rows stay an array."""
        return decode_one_hot(self.n, refuse) if self.ndim == 1 else decode_arrays(self._shape, self._dtype)

    def action_text(self) -> str:
        """Say how many entries there are."""
        return f"one-hot, a single 1 among {self.n} entries"

    # -------------------------------------------------------------------------------------------------------------

    @property
    def one_hot_sizes(self) -> list[int] | None:
        """Number of categories of each choice."""
        return list(self._parts)

    def bounds(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Return zeros and ones."""
        return self.zero(), self.one()

    def array_check(self) -> ArrayCheck | None:
        """Check that each row holds a single 1."""
        return check_one_hot(self._parts)

    def number_check(self) -> NumberCheck | None:
        """Check one row of a few categories; None for several rows or choices."""
        if self.ndim != 1 or len(self._parts) != 1 or self._parts[0] > PYTHON_LIMIT:
            return None
        others = self._parts[0] - 1
        return lambda row: row.count(0) == others and 1 in row

    def action_hint(self, value: torch.Tensor, expected: tuple[int, ...], name: str) -> str:
        """Suggest the largest entry of each row, if there is a single one, or how to make rows of category numbers."""
        if value.shape == expected:
            parts = shapes.split(value, self._parts)
            if all(bool(((part == part.amax(-1, keepdim=True)).sum(-1) == 1).all()) for part in parts):
                return f" Take the largest entry of each row with {name}.project(action)."
            return f" Make it of numbers with {name}.encode(numbers)."
        if not is_whole(value):
            return ""
        numbers = (*expected[:-1], *self._number_shape()[self.ndim - 1 :])
        if tuple(value.shape) == numbers:
            return f" Make one-hot vectors of numbers with {name}.encode(action)."
        if tuple(value.shape) == (*numbers, 1):
            return f" Make one-hot vectors of numbers with {name}.encode(action.squeeze(-1))."
        return ""

    def _numbers(self, rows: torch.Tensor) -> torch.Tensor:
        """Return the number of the largest entry for each choice."""
        rows = rows.to(torch.uint8) if rows.dtype is torch.bool else rows
        if not self._several:
            return rows.argmax(-1)
        return torch.stack([part.argmax(-1) for part in shapes.split(rows, self._parts)], -1)

    def _contains(self, val: torch.Tensor) -> bool:
        hot = val.to(torch.bool)
        if val.dtype is not torch.bool and not bool((val == hot).all()):
            return False
        if not all(bool((part.sum(-1) == 1).all()) for part in shapes.split(hot, self._parts)):
            return False
        return self._mask is None or category_masks.allows(self._mask, self._parts, self._columns(self._numbers(hot)))

    def _nearest(self, val: torch.Tensor) -> torch.Tensor:
        self._check_any("project", val.shape[:-1].numel())
        least = torch.finfo(torch.float64).min
        score = val.double().nan_to_num(least, torch.inf, least)
        if self._mask is not None:
            allowed = category_masks.allowed(self._mask, self._parts).to(val.device)
            score = score.masked_fill(~allowed, -torch.inf)  # below all other scores
        return self._one_hot(self._numbers(score), self._dtype)

    def _draw(self, lead: torch.Size, generator: torch.Generator | None, device: torch.device) -> torch.Tensor:
        return self._one_hot(self._draw_numbers(lead, generator, device, torch.int64), self._dtype)

    def __getitem__(self, index: object) -> Any:
        """Index the rows, which the last dimension holds.

        An index that keeps the last dimension works as for data. Any other index applies to the dimensions before it:
        ``spec[..., 0]`` selects the first entry of the last row dimension.
        """
        try:
            return super().__getitem__(index)
        except IndexError as error:
            try:
                rows = (*shapes.expand_index(index, self.ndim - 1), slice(None))
            except IndexError:
                raise error from None
            return super().__getitem__(rows)

    def encode(self, val: object, *, ignore_device: bool = False, key: Key = None, lead: Rows = None) -> torch.Tensor:
        """Return category numbers, of the shape that ``to_categorical`` returns, or one-hot vectors as one-hot vectors.

        A shape that is valid for both, such as 4 numbers of ``OneHot(4)``, is read as rows.

        Raises:
            SpecError: the shape is valid for neither, or a number is not a category.
        """
        tensor = self._tensor(val, key)
        size, before = self._number_shape(), lead or ()
        rows = in_shape(tensor, val, self._shape, lead)
        numbers = in_shape(one_element(tensor, torch.Size((*before, *size))), val, size, lead)
        if rows is None and numbers is None:
            fault = shape_fault(named(key, self), torch.Size((*before, *self._shape)), tensor.shape)
            raise SpecError(f"{fault} Category numbers of shape {(*before, *size)} are encoded as one-hot vectors.")
        if rows is not None:
            tensor = rows
        # The one-hot vector of a single category is [1], so a zero must be a category number.
        as_many = numbers is not None and numbers.ndim - len(size) == tensor.ndim - self.ndim
        if numbers is not None and (
            rows is None or (as_many and tensor.numel() and set(self._parts) == {1} and not bool(tensor.any()))
        ):
            index = whole(numbers)
            if not is_whole(numbers) or bool(((index < 0) | (index > self._last(index.device))).any()):
                expected = self.to_categorical_spec()._domain_text()
                raise SpecError(f"{named(key, self)}: expected {expected}, found {val!r}.")
            tensor = self._one_hot(index, self._dtype)
        return self._cast(tensor, key, ignore_device=ignore_device)

    def to_numpy(self, val: object, safe: bool | None = None, *, key: Key = None) -> Any:
        """Return category numbers as an int64 array; see :meth:`to_categorical`."""
        self._check_if(safe, val, key)
        return self.to_categorical(self._tensor(val, key)).detach().cpu().numpy()

    def to_one_hot(self, val: torch.Tensor, safe: bool | None = None) -> torch.Tensor:
        """Return ``val``, which is one-hot already."""
        self._check_if(safe, val)
        return val

    def from_numbers(self, numbers: torch.Tensor) -> torch.Tensor:
        """Return category numbers as one-hot vectors."""
        return self._one_hot(numbers, self._dtype)

    def to_one_hot_spec(self) -> Self:
        """Return a copy."""
        return self.clone()

    def index(self, index: torch.Tensor, tensor_to_index: torch.Tensor) -> torch.Tensor:
        """Select an entry for each choice from a tensor of the shape of the rows."""
        return self.to_categorical_spec().index(self.to_categorical(index), tensor_to_index)

    def enumerate(self, use_mask: bool = False) -> torch.Tensor:
        """Return all combinations of choices ``[k, *shape]``, repeated along batch dimensions."""
        return self._one_hot(self.to_categorical_spec().enumerate(use_mask), self._dtype)
