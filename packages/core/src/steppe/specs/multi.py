"""Several choices at once, each with its own number of categories."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import torch

from steppe.arguments import ignored_argument
from steppe.errors import SpecError

from . import masks, sampling, shapes
from .base import DeviceLike, Key, Spec, named
from .boxes import BoxList
from .discrete import Categorical, OneHot, checked_register, is_whole, most_categories, whole
from .dtypes import CPU
from .leaf import Leaf, nested_tensor, shape_fault
from .shapes import Change, ShapeLike

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["MultiCategorical", "MultiOneHot"]

Counts: TypeAlias = "Sequence[int] | torch.Tensor | int | Sequence[Any]"


def _counts(nvec: Counts, name: str) -> torch.Tensor:
    counts = torch.as_tensor(nvec, device="cpu")
    counts = counts.reshape(1) if counts.ndim == 0 else counts
    if counts.dtype.is_floating_point or counts.numel() == 0 or bool((counts < 0).any()):
        raise SpecError(f"{name}: expected numbers of categories of 0 or more, found nvec={nvec!r}.")
    return counts.to(torch.int64)


def _of_a_row(counts: torch.Tensor) -> torch.Tensor:
    """Nested numbers without the leading dimensions along which they are repeated."""
    while counts.ndim > 1 and bool((counts == counts[:1]).all()):
        counts = counts[0]
    return counts


def _parts(counts: torch.Tensor) -> list[int]:
    out: list[int] = counts.tolist()
    return out


class MultiCategorical(Categorical):
    """Several choices, each a number from 0 to its own ``n - 1``.

    It is a Categorical for ``isinstance``, but has no ``n``: each choice has its own in ``nvec``.

    Args:
        nvec: number of categories of each choice; nested where it differs along further dimensions.
        shape: shape of the data, which ends with the shape of ``nvec``; that shape by default.
        device: device of the data, or None.
        dtype: dtype of the data.
        mask: bool tensor that broadcasts to ``[*shape[:-1], sum(nvec)]``, True where a category is allowed; the choices
            one behind another. Only for a flat ``nvec``.
        remove_singleton: taken for programs that give it, without effect: samples have the shape of the spec.

    Attributes:
        remove_singleton: as it was given.

    Raises:
        SpecError: ``nvec`` does not fit the shape or the dtype, or the mask does not fit.
    """

    _tensors = ("_mask",)
    _default_dtype = torch.int64

    def __init__(
        self,
        nvec: Counts,
        shape: ShapeLike | None = None,
        device: DeviceLike = None,
        dtype: Any = torch.int64,
        mask: Any = None,
        remove_singleton: bool | None = None,
    ) -> None:
        if remove_singleton is not None:
            ignored_argument("MultiCategorical", "remove_singleton", "samples always have the shape of the spec")
        self.remove_singleton = remove_singleton is None or bool(remove_singleton)
        counts = _counts(nvec, "MultiCategorical")
        Leaf.__init__(self, shape=counts.shape if shape is None else shape, device=device, dtype=dtype)
        try:
            counts.expand(shapes.static(self._shape))
        except RuntimeError:
            raise SpecError(
                f"MultiCategorical: expected a shape that ends with {tuple(counts.shape)}, one element for each number "
                f"in nvec, found {tuple(self._shape)}."
            ) from None
        counts = _of_a_row(counts)
        self._nvec = counts
        self._check_dtype()
        self._mask: torch.Tensor | None = None
        self.update_mask(mask)

    def _check_dtype(self) -> None:
        most = int(self._nvec.max())
        if most > most_categories(self._dtype):
            raise SpecError(f"MultiCategorical: {self._dtype} cannot number {most} categories.")

    def _to_dtype(self, dtype: torch.dtype) -> Self:
        out = Leaf._to_dtype(self, dtype)
        out._check_dtype()
        return out

    @property
    def n(self) -> int:
        """Not there: see ``nvec``."""
        raise AttributeError("MultiCategorical has no n: each choice has its own number of categories, see nvec.")

    def set_provisional_n(self, n: int) -> None:
        """Not possible: the numbers of categories are known."""
        raise SpecError(f"MultiCategorical: the numbers of categories are known, and cannot be {n} for now.")

    @property
    def nvec(self) -> torch.Tensor:
        """Number of categories of each choice, int64 on the CPU, of the shape of the data (1 where it is dynamic)."""
        return self._nvec.expand(shapes.static(self._shape))

    @property
    def space(self) -> Any:
        """The choices, as a BoxList; one for each row of a batch alike. A nested nvec gives nested lists."""
        return BoxList.from_nvec(self._nvec)

    @property
    def domain(self) -> str:
        """``"discrete"``."""
        return "discrete"

    @property
    def mask(self) -> torch.Tensor | None:
        """What is allowed, ``[*shape[:-1], sum(nvec)]`` bool, or None."""
        return self._mask

    def update_mask(self, mask: Any) -> None:
        """Set or remove the mask, in place.

        Args:
            mask: bool tensor that broadcasts to ``[*shape[:-1], sum(nvec)]``, or None.
        """
        if mask is not None and self._nvec.ndim > 1:
            raise SpecError(
                f"MultiCategorical: a mask needs a flat nvec, found nvec of shape {tuple(self._nvec.shape)}."
            )
        full = torch.Size((*self._shape[:-1], int(self._nvec.sum())))
        self._mask = masks.checked(mask, full, name="MultiCategorical", device=self._device)

    def _split(self) -> list[Categorical]:
        """One Categorical for each choice of a flat nvec, each with its part of the mask."""
        parts = _parts(self._nvec)
        pieces: Sequence[torch.Tensor | None] = [None] * len(parts)
        if self._mask is not None:
            pieces = shapes.split(self._mask, parts)
        return [
            Categorical(n, self._shape[:-1], self._device, self._dtype, piece)
            for n, piece in zip(parts, pieces, strict=True)
        ]

    def _contains(self, val: torch.Tensor) -> bool:
        if not is_whole(val):
            return False
        index = val.to(torch.int64)
        if not bool(((index >= 0) & (index < self._nvec.to(val.device))).all()):
            return False
        if self._mask is None:
            return True
        return all(part._contains(column) for part, column in zip(self._split(), val.unbind(-1), strict=True))

    def _check_choices_of(self, what: str, n: int) -> None:
        if n and bool((self._nvec == 0).any()):
            raise self._unsupported(what, f"one of its choices has no category: nvec={self._nvec.tolist()}")

    def _nearest(self, val: torch.Tensor) -> torch.Tensor:
        self._check_choices_of("project", val.numel())
        index = torch.minimum(whole(val).clamp(min=0), self._nvec.to(val.device) - 1)
        if self._mask is not None:
            columns = zip(self._split(), index.unbind(-1), strict=True)
            index = torch.stack([part._nearest(column) for part, column in columns], -1)
        return index.to(self._dtype)

    def _draw(self, lead: torch.Size, generator: torch.Generator | None, device: torch.device) -> torch.Tensor:
        size = self._full(lead)
        self._check_choices_of("rand", size.numel())
        if self._mask is not None:
            return torch.stack([part._draw(lead, generator, device) for part in self._split()], -1)
        if size.numel() == 0:
            return torch.zeros(size, dtype=self._dtype, device=device)
        out = sampling.below(shapes.compress(self._nvec), size, generator=generator, device=device)
        return out.to(self._dtype)

    def _domain_text(self) -> str:
        mask = " that the mask allows" if self._mask is not None else ""
        return f"categories below {self._nvec.tolist()}{mask}"

    def _change(self, change: Change) -> Spec:
        shape = shapes.shape_after(self._shape, change)
        if shapes.event_survives(self._shape, change) and self._nvec.ndim == 1:
            mask = self._mask
            if mask is not None:
                to_rows = lambda t: change(t.unsqueeze(-1).expand(self._shape))[..., 0]  # noqa: E731
                mask = masks.moved(mask, shapes.positions(self._shape[:-1], to_rows))
            return self._with(_shape=shape, _mask=mask)
        if self._mask is not None:
            raise SpecError("MultiCategorical: the choices that a mask is about cannot be indexed, resized or moved.")
        counts = shapes.compress(change(self._nvec.expand(shapes.static(self._shape))))
        if counts.numel() == 0:
            counts = self._nvec.max()
        if counts.ndim == 0:
            return Categorical(int(counts), shape, self._device, self._dtype)
        return self._with(_shape=shape, _nvec=_of_a_row(counts).clone())

    def _resize(self, shape: torch.Size) -> None:
        mask = None if self._mask is None else masks.compressed(self._mask)
        other = type(self)(self._nvec, shape, self._device, self._dtype, mask=mask)
        self._shape, self._mask = other._shape, other._mask

    def make_neg_dim(self, dim: int) -> Self:
        """Make the size at ``dim`` dynamic, in place; return the spec. Not one of ``nvec``, nor with a mask."""
        at = shapes.normal_dim(dim, self.ndim, what="MultiCategorical")
        if self._mask is not None or at >= self.ndim - self._nvec.ndim:
            raise self._unsupported("make_neg_dim", "a mask and the choices need static sizes")
        return Leaf.make_neg_dim(self, dim)

    def _flat(self, what: str) -> list[int]:
        if self._nvec.ndim > 1:
            raise self._unsupported(what, f"nvec is nested, of shape {tuple(self._nvec.shape)}")
        return _parts(self._nvec)

    def to_one_hot(self, val: torch.Tensor, safe: bool | None = None) -> torch.Tensor:
        """Return numbers ``[..., k]`` as one-hot rows end to end, ``[..., sum(nvec)]`` bool.

        Where nvec is nested and its rows differ, the result is a nested tensor with a component for each row.
        """
        self._check_if(safe, val)
        if self._nvec.ndim == 1:
            return _hot(val.to(torch.int64), self._flat("to_one_hot"), torch.bool)
        at = self.ndim - self._nvec.ndim
        lead = val.ndim - self.ndim
        columns = zip(self.unbind(at), val.unbind(lead + at), strict=True)
        rows: list[Any] = [part.to_one_hot(column) for part, column in columns]  # type: ignore[attr-defined]
        if all(not row.is_nested and row.shape == rows[0].shape for row in rows):
            return torch.stack(rows, lead + at)
        if lead + at:
            raise self._unsupported("to_one_hot", f"the rows of nvec={self._nvec.tolist()} differ behind dimension 0")
        return nested_tensor(rows)

    def to_categorical(self, val: torch.Tensor, safe: bool | None = None) -> torch.Tensor:
        """Return ``val``, which is categorical already."""
        self._check_if(safe, val)
        return val

    def to_one_hot_spec(self) -> Any:
        """Return the spec of the same choices as one-hot rows, ``[*shape[:-1], sum(nvec)]`` bool.

        Where nvec is nested, that is a stack of the specs of its rows.
        """
        if self._nvec.ndim > 1:
            at = self.ndim - self._nvec.ndim
            return torch.stack([part.to_one_hot_spec() for part in self.unbind(at)], at)  # type: ignore
        parts = self._flat("to_one_hot_spec")
        return MultiOneHot(parts, (*self._shape[:-1], sum(parts)), self._device, torch.bool, mask=self._mask)

    def to_categorical_spec(self) -> MultiCategorical:
        """Return a copy."""
        return self.clone()

    def index(self, index: torch.Tensor, tensor_to_index: torch.Tensor) -> torch.Tensor:
        """Pick one entry per choice: numbers ``[..., k]`` and a tensor ``[..., sum(nvec)]`` give ``[..., k]``.

        Raises:
            SpecError: the shapes do not fit each other.
        """
        parts = self._flat("index")
        self._check_choices(index, tensor_to_index, tuple(index.shape[:-1]), sum(parts))
        starts = _starts(parts).to(index.device)
        rows = tensor_to_index.expand(*index.shape[:-1], tensor_to_index.shape[-1])
        return rows.gather(-1, index.to(torch.int64) + starts)

    def cardinality(self) -> int:
        """Return the product of the numbers of categories."""
        return math.prod(_parts(self._nvec.flatten()))

    def enumerate(self, use_mask: bool = False) -> torch.Tensor:
        """Return every combination of choices, ``[k, *shape]``, repeated along batch dimensions."""
        if self.cardinality() > 2**24:
            raise self._unsupported("enumerate", f"it has {self.cardinality()} data")
        if use_mask and self._mask is not None:
            pieces = shapes.split(self._mask, _parts(self._nvec))
        else:
            pieces = tuple(torch.ones(n, dtype=torch.bool, device=CPU) for n in _parts(self._nvec.flatten()))
        columns = [masks.allowed_categories(m, m.shape[-1], use_mask=True, device=None) for m in pieces]
        rows = torch.cartesian_prod(*columns).reshape(-1, *self._nvec.shape).to(self._device, self._dtype)
        batch = shapes.static(self._shape[: self.ndim - self._nvec.ndim])
        return rows.view(-1, *[1] * len(batch), *self._nvec.shape).expand(-1, *batch, *self._nvec.shape).clone()

    def _same(self, other: Any) -> bool:
        return Leaf._same(self, other) and torch.equal(self._nvec, other._nvec)

    def _arguments(self) -> list[str]:
        return [f"nvec={self._nvec.tolist()}", *(["mask=..."] if self._mask is not None else [])]


class MultiOneHot(OneHot):
    """Several choices as one-hot rows, one behind another in the last dimension.

    It is a OneHot for ``isinstance``, but has no ``n``: each choice has its own in ``nvec``.

    ``zero`` returns zeros, which are storage and not in the domain; likewise ``one``. The last dimension cannot be
    indexed, split or joined with others: an index is about the dimensions before it.

    Args:
        nvec: number of categories of each choice.
        shape: shape of the data, whose last size is ``sum(nvec)``; ``[sum(nvec)]`` by default.
        device: device of the data, or None.
        dtype: dtype of the data.
        use_register: taken for programs that give it, without effect: numbers are encoded as the categories they name.
        mask: bool tensor that broadcasts to ``shape``, True where a category is allowed.

    Attributes:
        use_register: as it was given.

    Raises:
        SpecError: ``nvec`` is nested or does not fit the shape, or the mask does not fit.
    """

    _tensors = ("_mask",)
    _default_dtype = torch.bool

    def __init__(
        self,
        nvec: Counts,
        shape: ShapeLike | None = None,
        device: DeviceLike = None,
        dtype: Any = torch.bool,
        use_register: bool = False,
        mask: Any = None,
    ) -> None:
        self.use_register = checked_register("MultiOneHot", use_register)
        counts = _counts(nvec, "MultiOneHot")
        if counts.ndim > 1:
            raise SpecError(f"MultiOneHot: expected a flat nvec, found one of shape {tuple(counts.shape)}.")
        self._parts = _parts(counts)
        width = sum(self._parts)
        Leaf.__init__(self, shape=(width,) if shape is None else shape, device=device, dtype=dtype)
        if not self._shape or self._shape[-1] != width:
            raise SpecError(
                f"MultiOneHot: expected a shape whose last size is sum(nvec) = {width}, found {tuple(self._shape)}."
            )
        self._mask: torch.Tensor | None = None
        self.update_mask(mask)

    @property
    def n(self) -> int:
        """Not there: see ``nvec``."""
        raise AttributeError("MultiOneHot has no n: each choice has its own number of categories, see nvec.")

    @property
    def nvec(self) -> list[int]:
        """Number of categories of each choice."""
        return list(self._parts)

    @property
    def space(self) -> Any:
        """The choices, as a BoxList."""
        return BoxList.from_nvec(self._parts)

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
        self._mask = masks.checked(mask, self._shape, name="MultiOneHot", device=self._device)

    def _contains(self, val: torch.Tensor) -> bool:
        hot = val.to(torch.bool)
        if val.dtype is not torch.bool and not bool((val == hot).all()):
            return False
        if not all(bool((part.sum(-1) == 1).all()) for part in shapes.split(hot, self._parts)):
            return False
        return self._mask is None or not bool((hot & ~self._open().to(val.device)).any())

    def _open(self) -> torch.Tensor:
        assert self._mask is not None
        return torch.cat([masks.allowed(part) for part in shapes.split(self._mask, self._parts)], -1)

    def _nearest(self, val: torch.Tensor) -> torch.Tensor:
        pieces: Sequence[torch.Tensor | None] = [None] * len(self._parts)
        if self._mask is not None:
            pieces = shapes.split(self._mask, self._parts)
        best = []
        for part, piece in zip(shapes.split(val, self._parts), pieces, strict=True):
            from_part = Categorical(part.shape[-1], self._shape[:-1], mask=piece).to_one_hot_spec()
            best.append(from_part._nearest(part))
        return torch.cat(best, -1).to(self._dtype)

    def _draw(self, lead: torch.Size, generator: torch.Generator | None, device: torch.device) -> torch.Tensor:
        return _hot(self.to_categorical_spec()._draw(lead, generator, device), self._parts, self._dtype)

    def _domain_text(self) -> str:
        mask = " where the mask allows it" if self._mask is not None else ""
        return f"a single one in each part of sizes {self._parts}{mask}"

    def _change(self, change: Change) -> Spec:
        if not shapes.event_survives(self._shape, change):
            raise IndexError(
                f"The last dimension of a MultiOneHot of shape {tuple(self._shape)} holds the categories: it cannot be "
                f"indexed, resized or moved."
            )
        shape, mask = shapes.shape_after(self._shape, change), self._mask
        if mask is not None:
            to_rows = lambda t: change(t.unsqueeze(-1).expand(self._shape))[..., 0]  # noqa: E731
            mask = masks.moved(mask, shapes.positions(self._shape[:-1], to_rows))
        return self._with(_shape=shape, _mask=mask)

    def _resize(self, shape: torch.Size) -> None:
        mask = None if self._mask is None else masks.compressed(self._mask)
        other = type(self)(self._parts, shape, self._device, self._dtype, mask=mask)
        self._shape, self._mask = other._shape, other._mask

    def make_neg_dim(self, dim: int) -> Self:
        """Make the size at ``dim`` dynamic, in place; return the spec. It cannot be the last; not with a mask."""
        if self._mask is not None or shapes.normal_dim(dim, self.ndim, what="MultiOneHot") == self.ndim - 1:
            raise self._unsupported("make_neg_dim", "a mask and the categories need static sizes")
        return Leaf.make_neg_dim(self, dim)

    def encode(self, val: Any, *, ignore_device: bool = False, key: Key = None) -> torch.Tensor:
        """Turn category numbers ``[*shape[:-1], k]``, or one-hot rows, into rows of the spec.

        Raises:
            SpecError: the shape is neither, or a number is not a category.
        """
        tensor = self._tensor(val, key)
        numbers = torch.Size((*self._shape[:-1], len(self._parts)))
        # With one category each, rows and numbers have one shape; a row would hold ones.
        is_number = sum(self._parts) == len(self._parts) and not bool(tensor.any())
        if is_number or not shapes.fits(tensor.shape, self._shape):
            if not shapes.fits(tensor.shape, numbers):
                fault = shape_fault(named(key, self), self._shape, tensor.shape)
                raise SpecError(f"{fault} Category numbers of shape {tuple(numbers)} are encoded as one-hot rows.")
            index, counts = whole(tensor), torch.tensor(self._parts, device=tensor.device)
            if not is_whole(tensor) or bool(((index < 0) | (index >= counts)).any()):
                raise SpecError(f"{named(key, self)}: expected categories below {self._parts}, found {val!r}.")
            tensor = _hot(index, self._parts, self._dtype)
        return self._cast(tensor, key, ignore_device=ignore_device)

    def to_numpy(self, val: Any, safe: bool | None = None, *, key: Key = None) -> Any:
        """Return the category numbers ``[..., *shape[:-1], k]`` as an int64 array."""
        self._check_if(safe, val, key)
        return self.to_categorical(val).detach().cpu().numpy()

    def to_categorical(self, val: torch.Tensor, safe: bool | None = None) -> torch.Tensor:
        """Return rows ``[..., sum(nvec)]`` as category numbers ``[..., k]``, int64.

        Args:
            val: data of the spec, with any leading dimensions.
            safe: check first that it is in the spec.
        """
        self._check_if(safe, val)
        val = val.to(torch.uint8) if val.dtype is torch.bool else val
        return torch.stack([part.argmax(-1) for part in shapes.split(val, self._parts)], -1)

    def to_one_hot(self, val: torch.Tensor, safe: bool | None = None) -> torch.Tensor:
        """Return ``val``, which is one-hot already."""
        self._check_if(safe, val)
        return val

    def to_categorical_spec(self) -> MultiCategorical:
        """Return the spec of the same choices as numbers, ``[*shape[:-1], k]`` int64."""
        shape = (*self._shape[:-1], len(self._parts))
        return MultiCategorical(self._parts, shape, self._device, torch.int64, self._mask)

    def to_one_hot_spec(self) -> MultiOneHot:
        """Return a copy."""
        return self.clone()

    def index(self, index: torch.Tensor, tensor_to_index: torch.Tensor) -> torch.Tensor:
        """Pick one entry per choice: rows ``[..., sum(nvec)]`` and a tensor of that shape give ``[..., k]``."""
        return self.to_categorical_spec().index(self.to_categorical(index), tensor_to_index)

    def cardinality(self) -> int:
        """Return the product of the numbers of categories."""
        return math.prod(self._parts)

    def enumerate(self, use_mask: bool = False) -> torch.Tensor:
        """Return every combination of choices, ``[k, *shape]``, repeated along batch dimensions."""
        return _hot(self.to_categorical_spec().enumerate(use_mask), self._parts, self._dtype)

    def _same(self, other: Any) -> bool:
        return Leaf._same(self, other) and self._parts == other._parts

    def _arguments(self) -> list[str]:
        return [f"nvec={self._parts}", *(["mask=..."] if self._mask is not None else [])]


def _starts(parts: list[int]) -> torch.Tensor:
    """Where each choice begins in the last dimension."""
    return torch.tensor([0, *parts[:-1]], device=CPU).cumsum(0)


def _hot(index: torch.Tensor, parts: list[int], dtype: torch.dtype) -> torch.Tensor:
    """Numbers ``[..., k]`` as one-hot rows ``[..., sum(parts)]``."""
    out = torch.zeros((*index.shape[:-1], sum(parts)), dtype=dtype, device=index.device)
    return out.scatter_(-1, index + _starts(parts).to(index.device), 1)
