"""ToTensorImage: images as torch's layers take them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch

from steppe.errors import SpecError
from steppe.specs import Bounded, Spec
from steppe_vision.image import ImageTransform

__all__ = ["ToTensorImage"]


class ToTensorImage(ImageTransform):
    """Puts the channels of images first, and scales 0..255 to 0..1.

    ``[*, H, W, C]`` becomes ``[*, C, H, W]``, floats. With ``dtype=torch.uint8`` values stay 0..255: nothing is scaled
    where the result is of integers, which hold nothing between 0 and 1.

    Args:
        from_int: divide by 255. None, the default, does so for integers that become floats.
        unsqueeze: add a dimension of size 1 in front of the channels: ``[*, 1, C, H, W]``.
        dtype: of the result; torch's default dtype by default.
        in_keys: images to read; by default ``"pixels"``, or ``"pixels"`` of each group of agents.
        out_keys: where the results go, one for each; by default in place of the images.
        shape_tolerant: leave the dimensions as they are where the last one is not 3.

    Raises:
        SpecError: an image has fewer than three dimensions, or its channels first; ``from_int=True`` with a dtype of
            integers; or images of floats from 0 to 1 would become integers.
    """

    def __init__(
        self,
        from_int: bool | None = None,
        unsqueeze: bool = False,
        dtype: torch.dtype | None = None,
        *,
        in_keys: Any = None,
        out_keys: Any = None,
        shape_tolerant: bool = False,
    ) -> None:
        super().__init__(in_keys, out_keys)
        self.from_int = from_int
        self.unsqueeze = unsqueeze
        self.dtype = torch.get_default_dtype() if dtype is None else dtype
        self.shape_tolerant = shape_tolerant
        if from_int and not self.dtype.is_floating_point:
            raise SpecError(
                f"ToTensorImage(from_int=True, dtype={self.dtype}): divided by 255, integers are 0 or 1. Leave "
                "from_int out, which keeps 0..255, or give a dtype of floats."
            )

    def shared_key(self) -> Any:
        return (type(self), self.from_int, self.unsqueeze, self.dtype, self.shape_tolerant, self.given_keys())

    def _apply_transform(self, value: torch.Tensor) -> torch.Tensor:
        self._check(value, layout="H, W, C")
        if not self.shape_tolerant or value.shape[-1] == 3:
            if value.shape[-3] in (1, 3) and min(value.shape[-2:]) > 4:
                raise SpecError(
                    f"ToTensorImage takes images [*, H, W, C], found the shape {tuple(value.shape)}. Channels come "
                    "first already: leave it out, or keep the dimensions with shape_tolerant=True."
                )
            value = value.movedim(-1, -3)
        if self._divides(value.is_floating_point()):
            # Into the order of the result at once, which divides and copies faster from then on.
            if not value.is_floating_point():
                floats = torch.get_default_dtype()
                value = value.to(floats, memory_format=torch.contiguous_format).div_(255)
            else:
                value = value.div(255)
        value = value.to(self.dtype)
        return value.unsqueeze(-4) if self.unsqueeze else value

    def _divides(self, of_floats: bool) -> bool:
        """Whether images, of floats or of integers, are divided by 255."""
        return not of_floats and self.dtype.is_floating_point if self.from_int is None else self.from_int

    def _leaf(self, key: Any, leaf: Spec) -> Spec:
        of_floats = leaf.dtype is not None and leaf.dtype.is_floating_point
        cuts = of_floats and not self.dtype.is_floating_point and isinstance(leaf, Bounded)
        if cuts and bool((leaf.space.high <= 1).all()):
            raise SpecError(
                f"ToTensorImage(dtype={self.dtype}): {key!r} is of floats up to 1, which integers do not hold. Leave "
                "dtype out."
            )
        return super()._leaf(key, leaf)

    def row_kernel(self, source: np.ndarray[Any, Any], target: np.ndarray[Any, Any]) -> Callable[[], object] | None:
        whole = source.dtype.kind in "iub"
        if not whole or self.from_int is False or source.ndim < 4 or self.dtype is not torch.get_default_dtype():
            return None
        if not self.shape_tolerant or source.shape[-1] == 3:
            source = np.moveaxis(source, -1, -3)
        if self.unsqueeze:
            target = target.squeeze(-4)
        # In one pass, where torch copies into the other order and then divides.
        dtype = target.dtype
        return partial(np.divide, source, dtype.type(255), out=target, dtype=dtype, casting="unsafe")
