"""One choice among ``n``, as a one-hot row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import torch

from steppe.arguments import ignored_argument
from steppe.errors import SpecError

from . import masks, shapes
from .action_checks import PYTHON_LIMIT, ArrayCheck, NumberCheck, check_one_hot
from .action_decoders import ActionDecoder, Refuse, decode_arrays, decode_one_hot
from .base import ChoiceForm, DeviceLike, Key, Rows, Spec, named
from .boxes import CategoricalBox
from .categorical import Categorical
from .discrete import Discrete, is_whole, one_hot, whole
from .dtypes import DTypeLike
from .leaf import in_shape, one_element, shape_fault
from .masks import MaskLike
from .shapes import Change, ShapeLike

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
    #: The number of categories of each choice; MultiOneHot has several.
    _parts: list[int]

    def __init__(
        self,
        n: int,
        shape: ShapeLike | None = None,
        device: DeviceLike = None,
        dtype: DTypeLike = torch.bool,
        use_register: bool = False,
        mask: MaskLike = None,
    ) -> None:
        self._begin([int(n)], shape, device, dtype, use_register, mask)

    def _begin(
        self,
        parts: list[int],
        shape: ShapeLike | None,
        device: DeviceLike,
        dtype: DTypeLike,
        use_register: bool,
        mask: Any,
    ) -> None:
        """Initialize a spec with one choice for each part."""
        super().__init__(shape=(sum(parts),) if shape is None else shape, device=device, dtype=dtype)
        if use_register:
            ignored_argument(type(self).__name__, "use_register", "numbers are encoded as the categories they name")
        self.use_register = bool(use_register)
        self._parts = parts
        self._check_shape()
        self.update_mask(mask)

    def _check_shape(self) -> None:
        width = sum(self._parts)
        if width < 0 or not self._shape or self._shape[-1] != width:
            raise SpecError(
                f"{type(self).__name__}: expected a shape whose last size is {self._width} = {width}, found "
                f"{tuple(self._shape)}."
            )

    def _category_dims(self) -> int:
        return 1

    def _mask_shape(self) -> torch.Size:
        return self._shape

    # Overridden by MultiOneHot ----------------------------------------------------------------

    @property
    def n(self) -> int:
        """Number of categories."""
        return self._parts[0]

    @property
    def space(self) -> Any:
        """The categories, as a CategoricalBox."""
        return CategoricalBox(self.n)

    def _number_shape(self) -> torch.Size:
        """Return the shape of the data as category numbers."""
        return self._shape[:-1]

    def _hot(self, index: torch.Tensor) -> torch.Tensor:
        """Convert category numbers to one-hot rows."""
        return one_hot(index, self._parts[0], dtype=self._dtype)

    def _draw(self, lead: torch.Size, generator: torch.Generator | None, device: torch.device) -> torch.Tensor:
        n, size = self._parts[0], self._full(lead)
        if n == 0:
            if size[:-1].numel():
                raise self._unsupported("rand", "it has no category")
            return torch.zeros(size, dtype=self._dtype, device=device)
        if self._mask is not None:
            return self._hot(masks.draw(self._mask, lead, generator=generator, device=device))
        return self._hot(torch.randint(0, n, size[:-1], generator=generator, device=device))

    def to_categorical(self, val: torch.Tensor, safe: bool | None = None) -> torch.Tensor:
        """Return rows ``[..., n]`` as category numbers ``[...]``, int64.

        Args:
            val: data of the spec, with any leading dimensions.
            safe: check first that it is in the spec.
        """
        self._check_if(safe, val)
        return (val.to(torch.uint8) if val.dtype is torch.bool else val).argmax(-1)

    def to_categorical_spec(self) -> Categorical:
        """Return the spec of the same choice as numbers, ``[*shape[:-1]]`` int64."""
        return Categorical(self.n, self._shape[:-1], self._device, torch.int64, self._mask)

    def cardinality(self) -> int:
        """Return the number of categories."""
        return self.n

    def _domain_text(self) -> str:
        among = " where the mask allows it" if self._mask is not None else ""
        return f"a single one among the {self.n} entries of each row{among}"

    def _categories_text(self) -> str:
        return f"categories from 0 to {self.n - 1}"

    def _counts_text(self) -> list[str]:
        return [f"n={self.n}"]

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

    def shape_hint(self, value: torch.Tensor, expected: tuple[int, ...], name: str) -> str:
        """Suggest how to make rows of category numbers."""
        if not is_whole(value):
            return ""
        numbers = (*expected[:-1], *self._number_shape()[self.ndim - 1 :])
        if tuple(value.shape) == numbers:
            return f" Make one-hot rows of numbers with {name}.encode(action)."
        if tuple(value.shape) == (*numbers, 1):
            return f" Make one-hot rows of numbers with {name}.encode(action.squeeze(-1))."
        return ""

    def choice_hint(self, value: torch.Tensor, name: str) -> str:
        """Suggest the largest entry of each row, if there is a single one."""
        parts = shapes.split(value, self._parts)
        if all(bool(((part == part.amax(-1, keepdim=True)).sum(-1) == 1).all()) for part in parts):
            return f" Take the largest entry of each row with {name}.project(action)."
        return f" Make it of numbers with {name}.encode(numbers)."

    def _contains(self, val: torch.Tensor) -> bool:
        hot = val.to(torch.bool)
        if val.dtype is not torch.bool and not bool((val == hot).all()):
            return False
        if not all(bool((part.sum(-1) == 1).all()) for part in shapes.split(hot, self._parts)):
            return False
        if self._mask is None:
            return True
        allowed = torch.cat([masks.allowed(part) for part in shapes.split(self._mask, self._parts)], -1)
        return not bool((hot & ~allowed.to(val.device)).any())

    def _nearest(self, val: torch.Tensor) -> torch.Tensor:
        pieces: Sequence[torch.Tensor | None] = [None] * len(self._parts)
        if self._mask is not None:
            pieces = shapes.split(self._mask, self._parts)
        parts = zip(shapes.split(val, self._parts), pieces, strict=True)
        return torch.cat([self._nearest_part(part, mask) for part, mask in parts], -1)

    def _nearest_part(self, val: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor:
        n = val.shape[-1]
        if n == 0 and val.shape[:-1].numel():
            raise self._unsupported("project", "it has no category")
        score = val.double().nan_to_num(-torch.inf, torch.inf, -torch.inf)
        if mask is not None:
            # All scores may be -inf: an allowed category must win in any case.
            allowed = masks.allowed(mask).to(val.device).expand(score.shape)
            best = score.masked_fill(~allowed, -torch.inf).amax(-1, keepdim=True)
            score = ((score == best) & allowed).to(torch.uint8)
        return one_hot(score.argmax(-1), n, dtype=self._dtype)

    def _change(self, change: Change) -> Spec:
        if not shapes.event_survives(self._shape, change):
            raise IndexError(
                f"The last dimension of a {type(self).__name__} of shape {tuple(self._shape)} holds the categories: it "
                f"cannot be indexed, resized or moved."
            )
        return self._with(_shape=shapes.shape_after(self._shape, change), _mask=self._mask_of_rows(change))

    def __getitem__(self, index: object) -> Any:
        """Index the rows, which the last dimension holds.

        An index that keeps the last dimension works as for data. Any other index applies to the dimensions before it:
        ``spec[..., 0]`` selects the first entry of the last row dimension.
        """
        try:
            return super().__getitem__(index)
        except IndexError:
            try:
                rows = (*shapes.expand_index(index, self.ndim - 1), slice(None))
            except IndexError:
                rows = None
            if rows is None:
                raise
            return super().__getitem__(rows)

    def encode(self, val: object, *, ignore_device: bool = False, key: Key = None, lead: Rows = None) -> torch.Tensor:
        """Convert category numbers, of the shape that ``to_categorical`` returns, or one-hot rows to one-hot rows.

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
            raise SpecError(f"{fault} Category numbers of shape {(*before, *size)} are encoded as one-hot rows.")
        if rows is not None:
            tensor = rows
        # The one-hot row of a single category is [1], so a zero must be a category number.
        as_many = numbers is not None and numbers.ndim - len(size) == tensor.ndim - self.ndim
        if numbers is not None and (
            rows is None or (as_many and tensor.numel() and set(self._parts) == {1} and not bool(tensor.any()))
        ):
            index, counts = whole(numbers), torch.tensor(self._parts, device=tensor.device)
            if not is_whole(numbers) or bool(((index < 0) | (index >= counts)).any()):
                raise SpecError(f"{named(key, self)}: expected {self._categories_text()}, found {val!r}.")
            tensor = self._hot(index)
        return self._cast(tensor, key, ignore_device=ignore_device)

    def _lead_dims(self, shape: Sequence[int]) -> int:
        is_rows = bool(shape) and shape[-1] == self._shape[-1]
        return max(0, len(shape) - (self.ndim if is_rows else len(self._number_shape())))

    def to_numpy(self, val: object, safe: bool | None = None, *, key: Key = None) -> Any:
        """Return category numbers as an int64 array; see :meth:`to_categorical`."""
        self._check_if(safe, val, key)
        return self.to_categorical(self._tensor(val, key)).detach().cpu().numpy()

    def to_one_hot(self, val: torch.Tensor, safe: bool | None = None) -> torch.Tensor:
        """Return ``val``, which is one-hot already."""
        self._check_if(safe, val)
        return val

    def to_one_hot_spec(self) -> Self:
        """Return a copy."""
        return self.clone()

    def index(self, index: torch.Tensor, tensor_to_index: torch.Tensor) -> torch.Tensor:
        """Select an entry for each choice from a tensor of the shape of the rows."""
        return self.to_categorical_spec().index(self.to_categorical(index), tensor_to_index)

    def enumerate(self, use_mask: bool = False) -> torch.Tensor:
        """Return all combinations of choices ``[k, *shape]``, repeated along batch dimensions."""
        return self._hot(self.to_categorical_spec().enumerate(use_mask))

    def _same(self, other: Self) -> bool:
        return super()._same(other) and self._parts == other._parts
