"""Several choices at once, as one-hot vectors end to end."""

from __future__ import annotations

import torch

from steppe.errors import SpecError

from .action_decoders import ActionDecoder, Refuse, decode_one_hot_parts
from .base import DeviceLike
from .category_masks import MaskLike
from .dtypes import DTypeLike
from .multi_categorical import Counts, MultiCategorical, counts_of
from .one_hot import OneHot
from .shapes import ShapeLike

__all__ = ["MultiOneHot"]


class MultiOneHot(OneHot):
    """Several choices as one-hot vectors, end to end in the last dimension.

    ``isinstance(spec, OneHot)`` is True, but there is no ``n``: ``nvec`` holds the number for each choice.

    ``zero`` and ``one`` are not valid choices. The last dimension cannot be indexed, split or joined: an index applies
    to the dimensions before it.

    Args:
        nvec: number of categories of each choice.
        shape: shape of the data, whose last size is ``sum(nvec)``; ``[sum(nvec)]`` by default.
        device: device of the data, or None.
        dtype: dtype of the data.
        use_register: ignored, with a warning; programs for TorchRL pass it.
        mask: bool tensor that broadcasts to ``shape``, True where a category is allowed.

    Attributes:
        use_register: the argument.

    Raises:
        SpecError: ``nvec`` is nested or does not fit the shape, or the mask does not fit.
    """

    choice_form = "several"
    _several = True
    _width = "sum(nvec)"

    def __init__(
        self,
        nvec: Counts,
        shape: ShapeLike | None = None,
        device: DeviceLike = None,
        dtype: DTypeLike = torch.bool,
        use_register: bool = False,
        mask: MaskLike = None,
    ) -> None:
        counts = counts_of(nvec, "MultiOneHot")
        if counts.ndim > 1:
            raise SpecError(f"MultiOneHot: expected a flat nvec, found one of shape {tuple(counts.shape)}.")
        self._parts = counts.tolist()
        super().__init__(sum(self._parts), shape, device, dtype, use_register, mask)

    @property
    def nvec(self) -> list[int]:
        """Number of categories of each choice."""
        return list(self._parts)

    def to_categorical_spec(self) -> MultiCategorical:
        """Return the spec of the same choices as numbers, ``[*shape[:-1], k]`` int64."""
        return MultiCategorical(self._parts, self._number_shape(), self._device, torch.int64, self._mask)

    def action_decoder(self, refuse: Refuse) -> ActionDecoder:
        """Decode rows into an array with the category of each choice."""
        return decode_one_hot_parts(self._parts)

    def action_text(self) -> str:
        """Say how many entries each choice has."""
        return f"one-hot vectors of {self._parts} entries, with a single 1 in each"
