"""Resize: images of another size."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch.nn.functional import interpolate

from steppe.errors import SpecError
from steppe_vision.image import ImageTransform, size_of

__all__ = ["Resize"]

#: Modes of torch's interpolate for images, and whether each can average what falls together.
_MODES = {"nearest": False, "nearest-exact": False, "bilinear": True, "bicubic": True, "area": False}


class Resize(ImageTransform):
    """Changes the size of images.

    ``[*, C, H, W]`` becomes ``[*, C, w, h]`` of the same dtype: as in TorchRL, the first number is that of the rows.
    Integers are rounded to the nearest. Bicubic results may be outside of the bounds that the image has, and have none.

    Args:
        w: rows of the result, or both sizes as a tuple or list.
        h: columns of the result; by default ``w``.
        interpolation: ``"bilinear"``, ``"bicubic"``, ``"nearest"``, ``"nearest-exact"`` or ``"area"`` (the mean of what
            falls into a pixel), or a member of torchvision's ``InterpolationMode``.
        in_keys: images to read; by default ``"pixels"``, or ``"pixels"`` of each group of agents.
        out_keys: where the results go, one for each; by default in place of the images.
        antialias: average over all pixels that fall together where an image becomes smaller, as PIL and torchvision
            do. Without it two by two (bilinear), or four by four (bicubic), are looked at, as OpenCV does it: several
            times faster. Other modes do not ask.

    Raises:
        SpecError: a size is no whole number or below 1, the interpolation is unknown, or an image has fewer than three
            dimensions, or its channels at the end (``[*, H, W, 3]``).
    """

    by_blocks = False  # the weights of a size are worked out at each call, by torch

    def __init__(
        self,
        w: int,
        h: int | None = None,
        interpolation: str = "bilinear",
        in_keys: Any = None,
        out_keys: Any = None,
        *,
        antialias: bool = True,
    ) -> None:
        super().__init__(in_keys, out_keys)
        if isinstance(w, (list, tuple)):
            if len(w) != 2 or h is not None:
                raise SpecError(f"Resize: w is one number, or both sizes as a pair without h, found w={w!r}, h={h!r}.")
            w, h = w
        self.w, self.h = size_of("Resize", w=w, h=w if h is None else h)
        # A member of an enumeration of torchvision says its name as its value.
        self.interpolation = str(getattr(interpolation, "value", interpolation))
        if self.interpolation not in _MODES:
            raise SpecError(f"Resize: interpolation is one of {list(_MODES)}, found {interpolation!r}.")
        self.antialias = bool(antialias)

    def shared_key(self) -> Any:
        return (type(self), self.w, self.h, self.interpolation, self.antialias, self.given_keys())

    def _apply_transform(self, value: torch.Tensor) -> torch.Tensor:
        self._check(value)
        if value.shape[-2] == self.w and value.shape[-1] == self.h:
            return value
        shape = value.shape
        images = self._resized(value.reshape(-1, *shape[-3:]), value.dtype)
        return images.reshape(*shape[:-2], self.w, self.h)

    def row_kernel(self, source: np.ndarray[Any, Any], target: np.ndarray[Any, Any]) -> Callable[[], object] | None:
        if source.ndim < 4 or source.shape[-2:] == (self.w, self.h):
            return None
        images, out = (torch.from_numpy(rows).reshape(-1, *rows.shape[-3:]) for rows in (source, target))
        resized, dtype = self._resized, images.dtype
        if images.data_ptr() != source.ctypes.data or out.data_ptr() != target.ctypes.data:
            return None  # their dimensions are not joined without a copy
        return lambda: out.copy_(resized(images, dtype))

    def _resized(self, images: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        """Images ``[n, C, H, W]`` of this dtype in their new size."""
        mode, rounds = self.interpolation, not dtype.is_floating_point
        if rounds:
            images = images.float()
        images = interpolate(images, (self.w, self.h), mode=mode, antialias=self.antialias and _MODES[mode])
        if rounds:
            if mode == "bicubic":
                least = torch.iinfo(dtype)
                images = images.clamp(least.min, least.max)
            images = images.round().to(dtype)
        return images

    def bounds(self, low: torch.Tensor, high: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor] | None:
        same = tuple(low.shape[-2:]) == (self.w, self.h)
        # Bicubic weights may be negative: what lies between two bounds may overshoot both.
        return None if self.interpolation == "bicubic" and not same else super().bounds(low, high)

    def _repr_keys(self) -> Any:
        return ("w", "h", "interpolation", "in_keys", "out_keys")
