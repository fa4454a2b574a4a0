"""Resize: change the size of images."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from tensordict import NestedKey
from torch.nn.functional import interpolate

from steppe.errors import SpecError
from steppe_vision.image import ImageTransform, size_of

__all__ = ["Resize"]

#: Modes of torch.nn.functional.interpolate for images, and whether each supports ``antialias``.
_MODES = {"nearest": False, "nearest-exact": False, "bilinear": True, "bicubic": True, "area": False}


class Resize(ImageTransform):
    """Change the size of images.

    ``[*, C, H, W]`` becomes ``[*, C, w, h]`` of the same dtype: as in TorchRL, ``w`` is the number of rows. Integers
    are rounded to the nearest. Bicubic results have no bounds, because they may exceed those of the image.

    >>> from steppe import Compose, Resize, ToTensorImage, TransformedEnv, make_env
    >>> env = TransformedEnv(make_env("gym:CartPole-v1", from_pixels=True), Compose(ToTensorImage(), Resize(84, 84)))
    >>> env.observation_spec["pixels"].shape
    torch.Size([3, 84, 84])

    Args:
        w: rows of the result, or both sizes as a tuple or list.
        h: columns of the result. Default: ``w``.
        interpolation: ``"bilinear"``, ``"bicubic"``, ``"nearest"``, ``"nearest-exact"`` or ``"area"`` (the mean of the
            area of each new pixel), or a member of torchvision's ``InterpolationMode``.
        in_keys: images to read. Default: ``"pixels"``, or ``"pixels"`` of each group of agents.
        out_keys: keys to write, as many as ``in_keys``. Default: ``in_keys``.
        antialias: when an image becomes smaller, average over all pixels that a new pixel covers, as PIL and
            torchvision do. False reads 2x2 pixels (bilinear) or 4x4 pixels (bicubic), as OpenCV does, which is several
            times faster. No effect in other modes.

    Raises:
        SpecError: a size is not a whole number >= 1, the interpolation is unknown, or an image has fewer than three
            dimensions or has its channels last (``[*, H, W, 3]``).
    """

    # torch computes the interpolation weights in each call, so a few large calls are faster than many small ones.
    by_blocks = False

    def __init__(
        self,
        w: int,
        h: int | None = None,
        interpolation: str = "bilinear",
        in_keys: NestedKey | Sequence[NestedKey] | None = None,
        out_keys: NestedKey | Sequence[NestedKey] | None = None,
        *,
        antialias: bool = True,
    ) -> None:
        super().__init__(in_keys, out_keys)
        if isinstance(w, (list, tuple)):
            if len(w) != 2 or h is not None:
                raise SpecError(f"Resize: pass w and h, or w=(rows, columns) without h; found w={w!r}, h={h!r}.")
            w, h = w
        self.w, self.h = size_of("Resize", w=w, h=w if h is None else h)
        # The members of torchvision's InterpolationMode have the name of the mode as their value.
        self.interpolation = str(getattr(interpolation, "value", interpolation))
        if self.interpolation not in _MODES:
            raise SpecError(f"Resize: interpolation must be one of {list(_MODES)}, found {interpolation!r}.")
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
            return None  # reshape made a copy, so writes to ``out`` would be lost
        return lambda: out.copy_(resized(images, dtype))

    def _resized(self, images: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        """Return images ``[n, C, H, W]`` in the new size, in this dtype."""
        mode, rounds = self.interpolation, not dtype.is_floating_point
        if rounds:
            images = images.float()
        images = interpolate(images, (self.w, self.h), mode=mode, antialias=self.antialias and _MODES[mode])
        if rounds:
            if mode == "bicubic":
                limits = torch.iinfo(dtype)
                images = images.clamp(limits.min, limits.max)
            images = images.round().to(dtype)
        return images

    def bounds(self, low: torch.Tensor, high: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor] | None:
        same = tuple(low.shape[-2:]) == (self.w, self.h)
        # Bicubic weights may be negative, so a result can exceed the bounds of the image.
        return None if self.interpolation == "bicubic" and not same else super().bounds(low, high)

    def _repr_keys(self) -> Any:
        return ("w", "h", "interpolation", "in_keys", "out_keys")
