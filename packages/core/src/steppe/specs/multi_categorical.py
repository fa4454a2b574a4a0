"""Several choices at once, each a number below its own ``n``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import torch

from steppe.arguments import ignored_argument
from steppe.errors import SpecError

from . import category_masks, shapes
from .action_checks import PYTHON_LIMIT, ArrayCheck, NumberCheck, check_each_below, check_numbers_below
from .base import DeviceLike, Spec
from .boxes import BoxList
from .categorical import Categorical, count_of
from .category_masks import MaskLike
from .dtypes import DTypeLike
from .leaf import Leaf
from .shapes import Change, ShapeLike

if TYPE_CHECKING:
    from .multi_one_hot import MultiOneHot

__all__ = ["Counts", "MultiCategorical", "counts_of"]

Counts: TypeAlias = "torch.Tensor | int | Sequence[object]"


def counts_of(nvec: Counts, name: str) -> torch.Tensor:
    """Convert numbers of categories to an int64 tensor; ``name`` is the class in errors."""
    counts = torch.as_tensor(nvec, device="cpu")
    counts = counts.reshape(1) if counts.ndim == 0 else counts
    if counts.dtype.is_floating_point or counts.numel() == 0 or bool((counts < 0).any()):
        raise SpecError(f"{name}: expected numbers of categories of 0 or more, found nvec={nvec!r}.")
    return counts.to(torch.int64)


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
    _several = True

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
        self._nvec = category_masks.compressed(counts)
        self._n = count_of(int(counts.max()), self)
        self.update_mask(mask)

    def _check_shape(self) -> None:
        try:
            self._nvec.expand(shapes.static(self._shape))
        except RuntimeError:
            raise SpecError(
                f"MultiCategorical: expected a shape that ends with {tuple(self._nvec.shape)}, one element for each "
                f"number in nvec, found {tuple(self._shape)}."
            ) from None

    def _event_shape(self) -> torch.Size:
        return self._nvec.shape

    def _mask_shape(self) -> torch.Size:
        if self._nvec.ndim > 1:
            raise SpecError(
                f"MultiCategorical: a mask needs a flat nvec, found nvec of shape {tuple(self._nvec.shape)}."
            )
        return super()._mask_shape()

    @property
    def _parts(self) -> list[int]:
        parts: list[int] = self._nvec.flatten().tolist()
        return parts

    def _last(self, device: torch.device) -> torch.Tensor | int:
        return self._nvec.to(device) - 1

    @property
    def nvec(self) -> torch.Tensor:
        """Number of categories of each choice, int64 on the CPU, of the shape of the data (1 where it is dynamic)."""
        return self._nvec.expand(shapes.static(self._shape))

    @property
    def space(self) -> Any:
        """The choices, as a BoxList, which holds for all rows. A nested nvec gives nested lists."""
        return BoxList.from_nvec(self._nvec)

    def _change_event(self, change: Change) -> Spec:
        shape = shapes.shape_after(self._shape, change)
        if self._mask is not None:
            raise SpecError("MultiCategorical: the choices that a mask is about cannot be indexed, resized or moved.")
        counts = shapes.compress(change(self._nvec.expand(shapes.static(self._shape))))
        if counts.numel() == 0:
            counts = self._nvec.max()
        if counts.ndim == 0:
            return Categorical(int(counts), shape, self._device, self._dtype)
        return self._with(_shape=shape, _nvec=category_masks.compressed(counts).clone(), _n=int(counts.max()))

    def _check_flat(self, what: str) -> None:
        if self._nvec.ndim > 1:
            raise self._unsupported(what, f"nvec is nested, of shape {tuple(self._nvec.shape)}")

    def to_one_hot_spec(self) -> MultiOneHot:
        """Return the spec of the same choices as one-hot vectors, ``[*shape[:-1], sum(nvec)]`` bool.

        Raises:
            NotSupported: ``nvec`` is nested. Convert the parts of ``spec.unbind(-2)``.
        """
        from .multi_one_hot import MultiOneHot

        self._check_flat("to_one_hot_spec")
        return MultiOneHot(self._nvec, self._mask_shape(), self._device, torch.bool, mask=self._mask)

    def array_check(self) -> ArrayCheck | None:
        """Check that each number is a category of its choice."""
        return check_each_below(self._nvec.numpy())

    def number_check(self) -> NumberCheck | None:
        """Check one action of a few choices; None for other shapes."""
        if self.ndim != 1 or self._nvec.ndim != 1 or len(self._nvec) > PYTHON_LIMIT:
            return None
        return check_numbers_below(self._parts)

    def action_text(self) -> str:
        """Return the ranges of the categories."""
        return f"whole numbers from 0 to {(self._nvec - 1).tolist()}"

    def action_hint(self, value: torch.Tensor, expected: tuple[int, ...], name: str) -> str:
        """Suggest the nearest categories, or how to make numbers of one-hot vectors or logits."""
        if value.shape == expected:
            return super().action_hint(value, expected, name)
        if self._nvec.ndim > 1 or tuple(value.shape) != (*expected[:-1], int(self._nvec.sum())):
            return ""
        return f" Make numbers of one-hot vectors, or of logits, with {name}.to_one_hot_spec().to_categorical(action)."

    def _counts_text(self) -> str:
        return f"nvec={self._nvec.tolist()}"
