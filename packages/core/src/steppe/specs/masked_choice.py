"""MaskedChoice: random choices under masks that come with the data."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from steppe.errors import SpecError

from . import category_masks
from .dtypes import CPU

if TYPE_CHECKING:
    from .discrete import Discrete

__all__ = ["MaskedChoice"]


class MaskedChoice:
    """Draw choices under a mask.

    A mask has one flag for each category, like the mask of the spec (``update_mask``). For several choices it may also
    have the shape ``[*B, choices, n]``, with a row for each choice, or ``[*B, n1, n2, ...]``, with a flag for each
    combination.

    Args:
        spec: the spec of the choices.
        shape: the shape of the masks.
        sizes: the number of categories of each of several choices; None for a single one.

    Raises:
        SpecError: the shape of the masks does not fit.
    """

    def __init__(self, spec: Discrete, shape: torch.Size, sizes: list[int] | None) -> None:
        self._shape = shape
        self._spec = spec.clone()
        self._spec.update_mask(None)
        self._columns: torch.Tensor | None = None
        self._sizes: list[int] | None = None
        expected = spec._mask_shape()
        self._joint = (
            sizes is None and shape.numel() == expected.numel() and shape[: len(expected) - 1] == expected[:-1]
        )
        if shape == expected or self._joint:
            return
        shapes = [tuple(expected)]
        if sizes is not None:
            joint = torch.Size((*expected[:-1], *sizes))
            if shape == joint:
                self._sizes = sizes
                return
            width = shape[-1] if shape else 0
            if shape[:-1] == (*expected[:-1], len(sizes)) and width >= max(sizes):
                self._columns = torch.cat([torch.arange(n, device=CPU) + i * width for i, n in enumerate(sizes)])
                return
            shapes += [(*expected[:-1], len(sizes), max(sizes)), tuple(joint)]
        raise SpecError(f"must have the shape {' or '.join(map(str, shapes))}, and its spec has {tuple(shape)}.")

    def draw(self, mask: torch.Tensor, lead: torch.Size, generator: torch.Generator | None) -> torch.Tensor:
        """Draw a choice for each row; a choice whose mask allows nothing is drawn among all categories.

        Args:
            mask: flags ``[*lead, *shape]``.
            lead: leading dimensions of the data that the spec does not have.
            generator: the source of randomness; None for torch's global one.

        Raises:
            SpecError: the mask has another shape, or a dtype that does not hold flags.
        """
        if mask.shape != (*lead, *self._shape) or mask.dtype.is_floating_point or mask.dtype.is_complex:
            raise SpecError(
                f"must have the shape {(*lead, *self._shape)} and the dtype torch.bool, found {tuple(mask.shape)} and "
                f"{mask.dtype}."
            )
        mask = mask.to(torch.bool).reshape(*lead, *self._spec._mask_shape()) if self._joint else mask.to(torch.bool)
        if self._sizes is not None:
            flags = mask.flatten(-len(self._sizes))
            drawn = category_masks.draw(
                flags, [flags.shape[-1]], torch.Size(()), generator=generator, device=flags.device
            )
            return self._spec.from_numbers(torch.stack(torch.unravel_index(drawn[..., 0], self._sizes), -1))
        if self._columns is not None:
            mask = mask.flatten(-2)[..., self._columns]
        spec = self._spec.expand((*lead, *self._spec.shape)) if lead else self._spec
        spec.update_mask(mask)
        choices: torch.Tensor = spec.rand(generator=generator)
        return choices
