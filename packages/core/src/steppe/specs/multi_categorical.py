"""Several choices at once, each a number below its own ``n``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import torch

from steppe.arguments import ignored_argument
from steppe.errors import SpecError

from . import masks, sampling, shapes
from .action_checks import PYTHON_LIMIT, ArrayCheck, NumberCheck, check_each_below, check_numbers_below
from .action_decoders import ActionDecoder, Refuse, decode_arrays
from .base import DeviceLike, Spec
from .boxes import BoxList
from .categorical import Categorical
from .discrete import is_whole, most_categories, one_hot_parts, starts, whole
from .dtypes import CPU, DTypeLike
from .leaf import Leaf, nested_tensor
from .masks import MaskLike
from .shapes import Change, ShapeLike

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["Counts", "MultiCategorical", "counts_list", "counts_of"]

Counts: TypeAlias = "torch.Tensor | int | Sequence[object]"


def counts_of(nvec: Counts, name: str) -> torch.Tensor:
    """Convert numbers of categories to an int64 tensor; ``name`` is the class in errors."""
    counts = torch.as_tensor(nvec, device="cpu")
    counts = counts.reshape(1) if counts.ndim == 0 else counts
    if counts.dtype.is_floating_point or counts.numel() == 0 or bool((counts < 0).any()):
        raise SpecError(f"{name}: expected numbers of categories of 0 or more, found nvec={nvec!r}.")
    return counts.to(torch.int64)


def _of_a_row(counts: torch.Tensor) -> torch.Tensor:
    """Remove leading dimensions along which nested numbers are repeated."""
    while counts.ndim > 1 and bool((counts == counts[:1]).all()):
        counts = counts[0]
    return counts


def counts_list(counts: torch.Tensor) -> list[int]:
    """Return flat numbers of categories as a list."""
    out: list[int] = counts.tolist()
    return out


class MultiCategorical(Categorical):
    """Several choices, each a number from 0 to its own ``n - 1``.

    ``isinstance(spec, Categorical)`` is True, but there is no ``n``: ``nvec`` holds the number for each choice.

    Args:
        nvec: number of categories of each choice; nested if it differs along further dimensions.
        shape: shape of the data, which ends with the shape of ``nvec``; that shape by default.
        device: device of the data, or None.
        dtype: dtype of the data.
        mask: bool tensor that broadcasts to ``[*shape[:-1], sum(nvec)]``, True where a category is allowed; the choices
            end to end. Only for a flat ``nvec``.
        remove_singleton: ignored, with a warning; programs for TorchRL pass it.

    Attributes:
        remove_singleton: the argument.

    Raises:
        SpecError: ``nvec`` does not fit the shape or the dtype, or the mask does not fit.
    """

    choice_form = "several"

    def __init__(
        self,
        nvec: Counts,
        shape: ShapeLike | None = None,
        device: DeviceLike = None,
        dtype: DTypeLike = torch.int64,
        mask: MaskLike = None,
        remove_singleton: bool | None = None,
    ) -> None:
        if remove_singleton is not None:
            ignored_argument("MultiCategorical", "remove_singleton", "samples always have the shape of the spec")
        self.remove_singleton = remove_singleton is None or bool(remove_singleton)
        counts = counts_of(nvec, "MultiCategorical")
        Leaf.__init__(self, shape=counts.shape if shape is None else shape, device=device, dtype=dtype)
        self._nvec = counts
        self._check_shape()
        self._nvec = _of_a_row(counts)
        self._check_dtype()
        self.update_mask(mask)

    def _check_shape(self) -> None:
        try:
            self._nvec.expand(shapes.static(self._shape))
        except RuntimeError:
            raise SpecError(
                f"MultiCategorical: expected a shape that ends with {tuple(self._nvec.shape)}, one element for each "
                f"number in nvec, found {tuple(self._shape)}."
            ) from None

    def _category_dims(self) -> int:
        return self._nvec.ndim

    def _mask_shape(self) -> torch.Size:
        if self._nvec.ndim > 1:
            raise SpecError(
                f"MultiCategorical: a mask needs a flat nvec, found nvec of shape {tuple(self._nvec.shape)}."
            )
        return torch.Size((*self._shape[:-1], int(self._nvec.sum())))

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
        """Raises AttributeError: see ``nvec``."""
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
        """The choices, as a BoxList, which holds for all rows. A nested nvec gives nested lists."""
        return BoxList.from_nvec(self._nvec)

    def _split(self) -> list[Categorical]:
        """Return a Categorical for each choice of a flat nvec, with its part of the mask."""
        parts = counts_list(self._nvec)
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
            return self._with(_shape=shape, _mask=self._mask_of_rows(change))
        if self._mask is not None:
            raise SpecError("MultiCategorical: the choices that a mask is about cannot be indexed, resized or moved.")
        counts = shapes.compress(change(self._nvec.expand(shapes.static(self._shape))))
        if counts.numel() == 0:
            counts = self._nvec.max()
        if counts.ndim == 0:
            return Categorical(int(counts), shape, self._device, self._dtype)
        return self._with(_shape=shape, _nvec=_of_a_row(counts).clone())

    def to_one_hot(self, val: torch.Tensor, safe: bool | None = None) -> torch.Tensor:
        """Return numbers ``[..., k]`` as one-hot rows end to end, ``[..., sum(nvec)]`` bool.

        If the rows of a nested nvec differ, the result is a nested tensor with a component for each row.
        """
        self._check_if(safe, val)
        if self._nvec.ndim == 1:
            return one_hot_parts(val.to(torch.int64), counts_list(self._nvec), dtype=torch.bool)
        at = self.ndim - self._nvec.ndim
        lead = val.ndim - self.ndim
        columns = zip(self.unbind(at), val.unbind(lead + at), strict=True)
        rows: list[Any] = [part.to_one_hot(column) for part, column in columns]  # type: ignore[attr-defined]
        if all(not row.is_nested and row.shape == rows[0].shape for row in rows):
            return torch.stack(rows, lead + at)
        if lead + at:
            raise self._unsupported("to_one_hot", f"the rows of nvec={self._nvec.tolist()} differ behind dimension 0")
        return nested_tensor(rows)

    def to_one_hot_spec(self) -> Any:
        """Return the spec of the same choices as one-hot rows, ``[*shape[:-1], sum(nvec)]`` bool.

        A nested nvec gives a stack of the specs of its rows.
        """
        if self._nvec.ndim > 1:
            at = self.ndim - self._nvec.ndim
            return torch.stack([part.to_one_hot_spec() for part in self.unbind(at)], at)  # type: ignore
        from .multi_one_hot import MultiOneHot

        parts = counts_list(self._nvec)
        return MultiOneHot(parts, (*self._shape[:-1], sum(parts)), self._device, torch.bool, mask=self._mask)

    def index(self, index: torch.Tensor, tensor_to_index: torch.Tensor) -> torch.Tensor:
        """Select an entry per choice: numbers ``[..., k]`` and a tensor ``[..., sum(nvec)]`` give ``[..., k]``.

        Raises:
            SpecError: the shapes do not fit each other.
        """
        if self._nvec.ndim > 1:
            raise self._unsupported("index", f"nvec is nested, of shape {tuple(self._nvec.shape)}")
        parts = counts_list(self._nvec)
        self._check_choices(index, tensor_to_index, tuple(index.shape[:-1]), sum(parts))
        rows = tensor_to_index.expand(*index.shape[:-1], tensor_to_index.shape[-1])
        return rows.gather(-1, index.to(torch.int64) + starts(parts).to(index.device))

    def cardinality(self) -> int:
        """Return the product of the numbers of categories."""
        return int(shapes.product(counts_list(self._nvec.flatten())))

    def enumerate(self, use_mask: bool = False) -> torch.Tensor:
        """Return all combinations of choices ``[k, *shape]``, repeated along batch dimensions."""
        self._check_countable(self.cardinality())
        if use_mask and self._mask is not None:
            pieces = shapes.split(self._mask, counts_list(self._nvec))
        else:
            pieces = tuple(torch.ones(n, dtype=torch.bool, device=CPU) for n in counts_list(self._nvec.flatten()))
        columns = [masks.allowed_categories(m, m.shape[-1], use_mask=True, device=None) for m in pieces]
        rows = torch.cartesian_prod(*columns).reshape(-1, *self._nvec.shape).to(self._device, self._dtype)
        batch = shapes.static(self._shape[: self.ndim - self._nvec.ndim])
        return rows.view(-1, *[1] * len(batch), *self._nvec.shape).expand(-1, *batch, *self._nvec.shape).clone()

    def bounds(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Return 0 and the last category of each choice; see :meth:`Spec.bounds`."""
        low = self.zero()
        return low, (self._nvec.to(low.device) - 1).expand(low.shape).to(self._dtype)

    def array_check(self) -> ArrayCheck | None:
        """Check that each number is a category of its choice."""
        return check_each_below(self._nvec.numpy())

    def number_check(self) -> NumberCheck | None:
        """Check one action of a few choices; None for other shapes."""
        if self.ndim != 1 or self._nvec.ndim != 1 or len(self._nvec) > PYTHON_LIMIT:
            return None
        return check_numbers_below(counts_list(self._nvec))

    def action_decoder(self, refuse: Refuse) -> ActionDecoder:
        """Decode actions into arrays."""
        return decode_arrays(self._shape, self._dtype)

    def action_text(self) -> str:
        """Return the ranges of the categories."""
        return f"whole numbers from 0 to {(self._nvec - 1).tolist()}"

    def shape_hint(self, value: torch.Tensor, expected: tuple[int, ...], name: str) -> str:
        """Suggest how to make numbers of one-hot rows or logits."""
        if self._nvec.ndim > 1 or tuple(value.shape) != (*expected[:-1], int(self._nvec.sum())):
            return ""
        return f" Make numbers of one-hot rows, or of logits, with {name}.to_one_hot_spec().to_categorical(action)."

    def _same(self, other: Self) -> bool:
        return Leaf._same(self, other) and torch.equal(self._nvec, other._nvec)

    def _counts_text(self) -> list[str]:
        return [f"nvec={self._nvec.tolist()}"]
