"""Crop and CenterCrop: cut a rectangle out of images."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from tensordict import NestedKey
from torch.nn.functional import pad

from steppe.errors import SpecError
from steppe_vision.image import ImageTransform, size_of

__all__ = ["CenterCrop", "Crop"]


def _kernel(source: Any, target: Any, top: int, left: int) -> Any:
    """Return a function that copies a rectangle of images ``[n, *, H, W]``.

    Pixels outside the image become 0.
    """
    (height, width), (rows, columns) = source.shape[-2:], target.shape[-2:]
    above, below = max(top, 0), max(min(top + rows, height), 0)
    before, behind = max(left, 0), max(min(left + columns, width), 0)
    inside = source[..., above:below, before:behind]
    place = target[..., above - top : below - top, before - left : behind - left]
    if place.shape == target.shape:
        return partial(np.copyto, target, inside)

    def copy() -> None:
        target.fill(0)
        np.copyto(place, inside)

    return copy if inside.size else partial(target.fill, 0)


def _part(image: torch.Tensor, top: int, left: int, rows: int, columns: int) -> torch.Tensor:
    """Return a rectangle of images ``[*, H, W]``; pixels outside the image become 0."""
    height, width = image.shape[-2:]
    inside = image[..., max(top, 0) : max(top + rows, 0), max(left, 0) : max(left + columns, 0)]
    if top >= 0 and left >= 0 and top + rows <= height and left + columns <= width:
        return inside
    # If the rectangle is completely outside, ``inside`` is empty and padding must not exceed the rectangle's size.
    above = min(max(-top, 0), rows - inside.shape[-2])
    before = min(max(-left, 0), columns - inside.shape[-1])
    return pad(inside, (before, columns - inside.shape[-1] - before, above, rows - inside.shape[-2] - above))


class _Cropped(ImageTransform):
    """Base class of crops: images ``[*, H, W]`` become ``[*, w, h]``."""

    def __init__(
        self,
        w: int,
        h: int | None,
        in_keys: NestedKey | Sequence[NestedKey] | None,
        out_keys: NestedKey | Sequence[NestedKey] | None,
    ) -> None:
        super().__init__(in_keys, out_keys)
        self.w, self.h = size_of(type(self).__name__, w=w, h=h if h else w)

    def _repr_keys(self) -> Any:
        return ("w", "h", "in_keys", "out_keys")


class Crop(_Cropped):
    """Crop images at a fixed position.

    ``[*, H, W]`` becomes ``[*, w, h]``: as in TorchRL, ``w`` is the number of rows. Pixels outside the image are 0.

    >>> from steppe import Compose, Crop, ToTensorImage, TransformedEnv, make_env
    >>> env = TransformedEnv(make_env("gym:CartPole-v1", from_pixels=True), Compose(ToTensorImage(), Crop(300, 200)))
    >>> env.observation_spec["pixels"].shape[-2:].numel()
    60000

    Args:
        w: rows of the result.
        h: columns of the result. Default: ``w``.
        top: first row of the image to keep.
        left: first column of the image to keep.
        in_keys: images to read. Default: ``"pixels"``, or ``"pixels"`` of each group of agents.
        out_keys: keys to write, as many as ``in_keys``. Default: ``in_keys``.

    Raises:
        SpecError: a size is not a whole number >= 1, ``top`` or ``left`` is not a whole number, or an image has fewer
            than two dimensions or has its channels last (``[*, H, W, 3]``).
    """

    def __init__(
        self,
        w: int,
        h: int | None = None,
        top: int = 0,
        left: int = 0,
        in_keys: NestedKey | Sequence[NestedKey] | None = None,
        out_keys: NestedKey | Sequence[NestedKey] | None = None,
    ) -> None:
        super().__init__(w, h, in_keys, out_keys)
        for name, offset in (("top", top), ("left", left)):
            if isinstance(offset, bool) or not isinstance(offset, int):
                raise SpecError(f"Crop: {name} must be a whole number of pixels, found {offset!r}.")
        self.top, self.left = top, left

    def shared_key(self) -> Any:
        return (type(self), self.w, self.h, self.top, self.left, self.given_keys())

    def _apply_transform(self, value: torch.Tensor) -> torch.Tensor:
        self._check(value, layout="H, W")
        return _part(value, self.top, self.left, self.w, self.h)

    def row_kernel(self, source: Any, target: Any) -> Any:
        return _kernel(source, target, self.top, self.left)

    def _repr_keys(self) -> Any:
        return ("w", "h", "top", "left", "in_keys", "out_keys")


class CenterCrop(_Cropped):
    """Crop images to their middle.

    ``[*, H, W]`` becomes ``[*, w, h]``: as in TorchRL, ``w`` is the number of rows. If the image is smaller, it is
    surrounded by zeros.

    >>> from steppe import CenterCrop, Compose, ToTensorImage, TransformedEnv, make_env
    >>> chain = Compose(ToTensorImage(), CenterCrop(200, 300))
    >>> env = TransformedEnv(make_env("gym:CartPole-v1", from_pixels=True), chain)
    >>> env.observation_spec["pixels"].shape[-2:].numel()
    60000

    Args:
        w: rows of the result.
        h: columns of the result. Default: ``w``.
        in_keys: images to read. Default: ``"pixels"``, or ``"pixels"`` of each group of agents.
        out_keys: keys to write, as many as ``in_keys``. Default: ``in_keys``.

    Raises:
        SpecError: a size is not a whole number >= 1, or an image has fewer than two dimensions or has its channels last
            (``[*, H, W, 3]``).
    """

    def __init__(
        self,
        w: int,
        h: int | None = None,
        in_keys: NestedKey | Sequence[NestedKey] | None = None,
        out_keys: NestedKey | Sequence[NestedKey] | None = None,
    ) -> None:
        super().__init__(w, h, in_keys, out_keys)

    def shared_key(self) -> Any:
        return (type(self), self.w, self.h, self.given_keys())

    def _apply_transform(self, value: torch.Tensor) -> torch.Tensor:
        self._check(value, layout="H, W")
        height, width = value.shape[-2:]
        return _part(value, _middle(height, self.w), _middle(width, self.h), self.w, self.h)

    def row_kernel(self, source: Any, target: Any) -> Any:
        height, width = source.shape[-2:]
        return _kernel(source, target, _middle(height, self.w), _middle(width, self.h))


def _middle(size: int, part: int) -> int:
    """Return the first row or column of the middle.

    It is negative if the crop is larger than the image.
    """
    # If the difference is odd, choose the same pixel as torchvision's center_crop, so that results agree.
    return round((size - part) / 2) if size >= part else -((part - size) // 2)
