"""One choice among ``n``, as a number or as a one-hot row."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from steppe.arguments import ignored_argument
from steppe.errors import NotSupported, SpecError

from . import masks, sampling, shapes
from .base import DeviceLike, Key, Spec, named
from .boxes import CategoricalBox
from .dtypes import CPU
from .leaf import Leaf, one_element, shape_fault
from .shapes import Change, ShapeLike

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["Categorical", "OneHot"]


def most_categories(dtype: torch.dtype) -> int | float:
    """How many categories the values of a dtype can number."""
    if dtype is torch.bool:
        return 2
    if dtype.is_floating_point:
        # All integers up to here are exact.
        return 2.0 / torch.finfo(dtype).eps
    return torch.iinfo(dtype).max + 1


def whole(val: torch.Tensor) -> torch.Tensor:
    """Category numbers of any dtype as int64, to the nearest whole one."""
    return val.nan_to_num().round().to(torch.int64) if val.dtype.is_floating_point else val.to(torch.int64)


def checked_register(owner: str, use_register: bool) -> bool:
    """Return ``use_register``, which has no effect."""
    if use_register:
        ignored_argument(owner, "use_register", "numbers are encoded as the categories they name")
    return bool(use_register)


def is_whole(val: torch.Tensor) -> bool:
    """Whether all values are whole numbers."""
    return not val.dtype.is_floating_point or bool((val == val.round()).all())


class Categorical(Leaf):
    """One of ``n`` categories, as a number from 0 to ``n - 1``, for every element of a shape.

    Args:
        n: number of categories; -1 where it is not known yet (see :meth:`set_provisional_n`). With 0 there is no datum.
        shape: shape of the data.
        device: device of the data, or None.
        dtype: dtype of the data; with ``torch.bool`` and ``n=2`` it describes flags.
        mask: bool tensor that broadcasts to ``[*shape, n]``, True where a category is allowed. A row that allows
            nothing restricts nothing.

    Raises:
        SpecError: the dtype cannot number ``n`` categories, or the mask does not fit.
    """

    _tensors = ("_mask",)
    _default_dtype = torch.int64

    def __init__(
        self,
        n: int,
        shape: ShapeLike = (),
        device: DeviceLike = None,
        dtype: Any = torch.int64,
        mask: Any = None,
    ) -> None:
        super().__init__(shape=shape, device=device, dtype=dtype)
        self._n = _count(n, self)
        self._provisional: int | None = None
        self._mask: torch.Tensor | None = None
        self.update_mask(mask)

    @property
    def n(self) -> int:
        """Number of categories; the provisional one where it is not known.

        Raises:
            NotSupported: there is no provisional one. ``space.n`` is -1 then.
        """
        return self._known_n("n")

    @property
    def _n_now(self) -> int:
        """The number of categories; -1 where nobody has said it yet."""
        return self._n if self._n >= 0 or self._provisional is None else self._provisional

    @property
    def space(self) -> CategoricalBox:
        """The categories, as a CategoricalBox."""
        return CategoricalBox(self._n_now)

    @property
    def domain(self) -> str:
        """``"discrete"``."""
        return "discrete"

    @property
    def mask(self) -> torch.Tensor | None:
        """What is allowed, ``[*shape, n]`` bool, or None."""
        return self._mask

    def update_mask(self, mask: Any) -> None:
        """Set or remove the mask, in place.

        Args:
            mask: bool tensor that broadcasts to ``[*shape, n]``, or None.
        """
        full = torch.Size((*self._shape, self._n_now))
        self._mask = masks.checked(mask, full, name=type(self).__name__, device=self._device)

    def set_provisional_n(self, n: int) -> None:
        """Say how many categories there are for now, in place, where the spec was made with ``n=-1``.

        Raises:
            SpecError: the number is known already.
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
        """``data`` where it holds nothing; without categories there is nothing that it could hold."""
        if self._n_now == 0 and data.numel():
            raise self._unsupported(what, "it has no category")
        return data

    def _change(self, change: Change) -> Spec:
        out = super()._change(change)
        if self._mask is None:
            return out
        return self._with(_shape=out.shape, _mask=masks.moved(self._mask, shapes.positions(self._shape, change)))

    def _resize(self, shape: torch.Size) -> None:
        mask = self._mask
        if mask is not None:
            rows = masks.compressed(mask)
            mask = masks.checked(rows, torch.Size((*shape, self._n_now)), name=type(self).__name__, device=self._device)
        self._shape, self._mask = shape, mask

    def make_neg_dim(self, dim: int) -> Self:
        """Make the size at ``dim`` dynamic, in place; return the spec. Not with a mask."""
        if self._mask is not None:
            raise self._unsupported("make_neg_dim", "a mask needs static sizes")
        return super().make_neg_dim(dim)

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
        return sampling.one_hot(val.to(torch.int64), self._known_n("to_one_hot"), dtype=torch.bool)

    def to_categorical(self, val: torch.Tensor, safe: bool | None = None) -> torch.Tensor:
        """Return ``val``, which is categorical already."""
        self._check_if(safe, val)
        return val

    def to_one_hot_spec(self) -> OneHot:
        """Return the spec of the same choice as one-hot rows, ``[*shape, n]`` bool."""
        n = self._known_n("to_one_hot_spec")
        return OneHot(n, (*self._shape, n), self._device, torch.bool, mask=self._mask)

    def to_categorical_spec(self) -> Categorical:
        """Return a copy."""
        return self.clone()

    def index(self, index: torch.Tensor, tensor_to_index: torch.Tensor) -> torch.Tensor:
        """Pick the chosen entry of each row: categories ``[...]`` and a tensor ``[..., n]`` give ``[...]``.

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
        """Return every category, ``[n, *shape]``, all elements alike."""
        n = self._known_n("enumerate")
        each = masks.allowed_categories(self._mask, n, use_mask=use_mask, device=self._device).to(self._dtype)
        return each.view(-1, *[1] * self.ndim).expand(-1, *shapes.static(self._shape)).clone()

    def _same(self, other: Any) -> bool:
        return super()._same(other) and (self._n, self._n_now) == (other._n, other._n_now)

    def _arguments(self) -> list[str]:
        return [f"n={self._n_now}", *(["mask=..."] if self._mask is not None else [])]


class OneHot(Leaf):
    """One of ``n`` categories, as a row with a single one in the last dimension.

    ``zero`` returns zeros, which are storage and not in the domain; likewise ``one``. The last dimension cannot be
    indexed, split or joined with others: an index is about the dimensions before it.

    Args:
        n: number of categories.
        shape: shape of the data, whose last size is ``n``; ``[n]`` by default.
        device: device of the data, or None.
        dtype: dtype of the data.
        use_register: taken for programs that give it, without effect: numbers are encoded as the categories they name.
        mask: bool tensor that broadcasts to ``shape``, True where a category is allowed. A row that allows nothing
            restricts nothing.

    Attributes:
        use_register: as it was given.

    Raises:
        SpecError: the last size of the shape is not ``n``, or the mask does not fit.
    """

    _tensors = ("_mask",)
    _default_dtype = torch.bool

    def __init__(
        self,
        n: int,
        shape: ShapeLike | None = None,
        device: DeviceLike = None,
        dtype: Any = torch.bool,
        use_register: bool = False,
        mask: Any = None,
    ) -> None:
        super().__init__(shape=(n,) if shape is None else shape, device=device, dtype=dtype)
        self.use_register = checked_register("OneHot", use_register)
        if n < 0 or not self._shape or self._shape[-1] != n:
            raise SpecError(
                f"OneHot: expected a shape whose last size is the number of categories, found n={n} and shape "
                f"{tuple(self._shape)}."
            )
        self._n = int(n)
        self._mask: torch.Tensor | None = None
        self.update_mask(mask)

    @property
    def n(self) -> int:
        """Number of categories."""
        return self._n

    @property
    def space(self) -> CategoricalBox:
        """The categories, as a CategoricalBox."""
        return CategoricalBox(self._n)

    @property
    def domain(self) -> str:
        """``"discrete"``."""
        return "discrete"

    @property
    def mask(self) -> torch.Tensor | None:
        """What is allowed, of the shape of the data, bool; or None."""
        return self._mask

    def update_mask(self, mask: Any) -> None:
        """Set or remove the mask, in place.

        Args:
            mask: bool tensor that broadcasts to ``shape``, or None.
        """
        self._mask = masks.checked(mask, self._shape, name="OneHot", device=self._device)

    def _contains(self, val: torch.Tensor) -> bool:
        hot = val.to(torch.bool)
        if val.dtype is not torch.bool and not bool((val == hot).all()):
            return False
        if not bool((hot.sum(-1) == 1).all()):
            return False
        return self._mask is None or not bool((hot & ~masks.allowed(self._mask).to(val.device)).any())

    def _nearest(self, val: torch.Tensor) -> torch.Tensor:
        if self._n == 0 and val.shape[:-1].numel():
            raise self._unsupported("project", "it has no category")
        score = val.double().nan_to_num(-torch.inf, torch.inf, -torch.inf)
        if self._mask is not None:
            # Lower than the lowest score, so that an allowed category wins over it.
            open_ = masks.allowed(self._mask).to(val.device).expand(score.shape)
            best = score.masked_fill(~open_, -torch.inf).amax(-1, keepdim=True)
            return sampling.one_hot(((score == best) & open_).to(torch.uint8).argmax(-1), self._n, dtype=self._dtype)
        return sampling.one_hot(score.argmax(-1), self._n, dtype=self._dtype)

    def _draw(self, lead: torch.Size, generator: torch.Generator | None, device: torch.device) -> torch.Tensor:
        size = self._full(lead)
        if self._n == 0:
            if size[:-1].numel():
                raise self._unsupported("rand", "it has no category")
            return torch.zeros(size, dtype=self._dtype, device=device)
        if self._mask is not None:
            index = masks.draw(self._mask, lead, generator=generator, device=device)
        else:
            index = torch.randint(0, self._n, size[:-1], generator=generator, device=device)
        return sampling.one_hot(index, self._n, dtype=self._dtype)

    def _domain_text(self) -> str:
        among = " where the mask allows it" if self._mask is not None else ""
        return f"a single one among the {self._n} entries of each row{among}"

    def _change(self, change: Change) -> Spec:
        shape = self._event_shape(change)
        if self._mask is None:
            return self._with(_shape=shape)
        rows = shapes.positions(self._shape[:-1], lambda t: change(t.unsqueeze(-1).expand(self._shape))[..., 0])
        return self._with(_shape=shape, _mask=masks.moved(self._mask, rows))

    def _event_shape(self, change: Change) -> torch.Size:
        if not shapes.event_survives(self._shape, change):
            raise IndexError(
                f"The last dimension of a {type(self).__name__} of shape {tuple(self._shape)} holds the categories: it "
                f"cannot be indexed, resized or moved."
            )
        return shapes.shape_after(self._shape, change)

    def __getitem__(self, index: Any) -> Any:
        """Index the rows, which the last dimension holds.

        An index that leaves the last dimension whole means what it means for data. Any other one is about the
        dimensions before it: ``spec[..., 0]`` is the spec of the last row dimension's first entry.
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

    def _resize(self, shape: torch.Size) -> None:
        mask = None if self._mask is None else masks.compressed(self._mask)
        other = type(self)(self._n, shape, self._device, self._dtype, mask=mask)
        self._shape, self._mask = other._shape, other._mask

    def make_neg_dim(self, dim: int) -> Self:
        """Make the size at ``dim`` dynamic, in place; return the spec. It cannot be the last; not with a mask."""
        if self._mask is not None or shapes.normal_dim(dim, self.ndim, what="OneHot") == self.ndim - 1:
            raise self._unsupported("make_neg_dim", "a mask and the categories need static sizes")
        return super().make_neg_dim(dim)

    def encode(self, val: Any, *, ignore_device: bool = False, key: Key = None) -> torch.Tensor:
        """Turn category numbers ``[*shape[:-1]]``, or one-hot rows, into rows of the spec.

        Raises:
            SpecError: the shape is neither, or a number is not a category.
        """
        tensor = self._tensor(val, key)
        rows = self._shape[:-1]
        if not shapes.fits(tensor.shape, self._shape) or (self._n == 1 and not bool(tensor.any())):
            # A row of one category holds a one, so a zero is the number of that category.
            tensor = one_element(tensor, rows)
        if tensor.ndim == self.ndim - 1 and shapes.fits(tensor.shape, rows):
            if not is_whole(tensor) or bool(((whole(tensor) < 0) | (whole(tensor) >= self._n)).any()):
                raise SpecError(f"{named(key, self)}: expected categories from 0 to {self._n - 1}, found {val!r}.")
            tensor = sampling.one_hot(whole(tensor), self._n, dtype=self._dtype)
        elif not shapes.fits(tensor.shape, self._shape):
            fault = shape_fault(named(key, self), self._shape, tensor.shape)
            raise SpecError(f"{fault} Category numbers of shape {tuple(rows)} are encoded as one-hot rows.")
        return self._cast(tensor, key, ignore_device=ignore_device)

    def to_numpy(self, val: Any, safe: bool | None = None, *, key: Key = None) -> Any:
        """Return the category numbers ``[..., *shape[:-1]]`` as an int64 array."""
        self._check_if(safe, val, key)
        return self.to_categorical(val).detach().cpu().numpy()

    def to_categorical(self, val: torch.Tensor, safe: bool | None = None) -> torch.Tensor:
        """Return rows ``[..., n]`` as category numbers ``[...]``, int64.

        Args:
            val: data of the spec, with any leading dimensions.
            safe: check first that it is in the spec.
        """
        self._check_if(safe, val)
        return (val.to(torch.uint8) if val.dtype is torch.bool else val).argmax(-1)

    def to_one_hot(self, val: torch.Tensor, safe: bool | None = None) -> torch.Tensor:
        """Return ``val``, which is one-hot already."""
        self._check_if(safe, val)
        return val

    def to_categorical_spec(self) -> Categorical:
        """Return the spec of the same choice as numbers, ``[*shape[:-1]]`` int64."""
        return Categorical(self._n, self._shape[:-1], self._device, torch.int64, self._mask)

    def to_one_hot_spec(self) -> OneHot:
        """Return a copy."""
        return self.clone()

    def index(self, index: torch.Tensor, tensor_to_index: torch.Tensor) -> torch.Tensor:
        """Pick the chosen entry of each row: one-hot rows ``[..., n]`` and a tensor ``[..., n]`` give ``[...]``."""
        return self.to_categorical_spec().index(self.to_categorical(index), tensor_to_index)

    def cardinality(self) -> int:
        """Return the number of categories."""
        return self._n

    def enumerate(self, use_mask: bool = False) -> torch.Tensor:
        """Return every category, ``[n, *shape]``, all rows alike."""
        index = self.to_categorical_spec().enumerate(use_mask)
        return sampling.one_hot(index, self._n, dtype=self._dtype)

    def _same(self, other: Any) -> bool:
        return super()._same(other) and self._n == other._n

    def _arguments(self) -> list[str]:
        return [f"n={self._n}", *(["mask=..."] if self._mask is not None else [])]


def _count(n: int, spec: Leaf) -> int:
    """The number of categories, when the dtype of the spec can number them."""
    if n < -1:
        raise SpecError(f"{type(spec).__name__}: expected 0 or more categories, or -1 for unknown, found n={n}.")
    if n > most_categories(spec.dtype):
        raise SpecError(f"{type(spec).__name__}: {spec.dtype} cannot number {n} categories. Use torch.int64.")
    return int(n)
