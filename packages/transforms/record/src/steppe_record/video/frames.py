"""Frames: layouts of pixels, conversion to uint8, and grids."""

from __future__ import annotations

import math
from typing import Any, Literal

import numpy as np
import torch

from steppe.errors import SpecError

__all__ = ["chw_frames", "grid", "hwc_frames", "layout_of"]

Layout = Literal["hw", "chw", "hwc"]


def layout_of(shape: Any, what: str) -> Layout:
    """Return the layout of a frame: ``[H, W]``, ``[C, H, W]`` or ``[H, W, C]``.

    C is 1 or 3.

    Args:
        shape: shape of a frame, or of several with leading dimensions.
        what: name of the frames in the error.

    Raises:
        SpecError: the shape has none of these layouts.
    """
    shape = tuple(shape)
    if len(shape) == 2:
        return "hw"
    if len(shape) >= 3:
        # Height and width are larger than the number of channels.
        if shape[-3] in (1, 3) and min(shape[-2:]) > 3:
            return "chw"
        if shape[-1] in (1, 3):
            return "hwc"
    raise SpecError(
        f"{what} must be images: [H, W, 3] or [3, H, W] in colour, [H, W], [H, W, 1] or [1, H, W] in grey. "
        f"Found the shape {list(shape)}."
    )


def chw_frames(pixels: torch.Tensor, layout: Layout, what: str) -> torch.Tensor:
    """Return pixels as frames ``[*lead, 3, H, W]`` uint8, without a copy if possible.

    Raises:
        SpecError: the values are not integers from 0 to 255.
    """
    pixels = _as_bytes(pixels, what)
    if layout == "hw":
        pixels = pixels.unsqueeze(-3)
    elif layout == "hwc":
        pixels = pixels.movedim(-1, -3)
    return pixels.expand(*pixels.shape[:-3], 3, *pixels.shape[-2:])


def hwc_frames(video: torch.Tensor) -> torch.Tensor:
    """Return the frames ``[T, H, W, 3]`` uint8 of a video that a logger receives.

    Args:
        video: ``[T, C, H, W]``, or ``[N, T, C, H, W]`` for N videos that are shown in sequence; C is 1 or 3.

    Raises:
        SpecError: the video has another shape, or its values are not integers from 0 to 255.
    """
    if not isinstance(video, torch.Tensor):
        video = torch.from_numpy(np.asarray(video))
    if video.ndim not in (4, 5) or video.shape[-3] not in (1, 3):
        raise SpecError(
            f"A video has the shape [T, C, H, W] or [N, T, C, H, W], with C = 1 or 3. Found {list(video.shape)}."
        )
    return chw_frames(video.flatten(0, -4), "chw", "A video").movedim(-3, -1)


def _as_bytes(pixels: torch.Tensor, what: str) -> torch.Tensor:
    if pixels.dtype is torch.uint8:
        return pixels
    if pixels.dtype is torch.bool or pixels.is_floating_point() or pixels.is_complex():
        raise SpecError(
            f"{what} must be of dtype uint8, from 0 to 255. Found {pixels.dtype}: put the recorder before "
            "transforms that convert images to floats (ToTensorImage, ObservationNorm), or convert them back: "
            "(255 * x).to(torch.uint8)."
        )
    if pixels.numel() and (pixels.min() < 0 or pixels.max() > 255):
        raise SpecError(
            f"{what} must be from 0 to 255. Found {pixels.dtype} from {int(pixels.min())} to {int(pixels.max())}."
        )
    return pixels.to(torch.uint8)


def grid(frames: torch.Tensor) -> torch.Tensor:
    """Tile frames: ``[N, C, H, W]`` becomes ``[C, rows * H, columns * W]``.

    There are about as many rows as columns, filled row by row. Empty cells are black.
    """
    n, channels, height, width = frames.shape
    columns = math.ceil(math.sqrt(n))
    rows = math.ceil(n / columns)
    image = frames.new_zeros(channels, rows, height, columns, width)
    for index, frame in enumerate(frames):
        row, column = divmod(index, columns)
        image[:, row, :, column] = frame
    return image.view(channels, rows * height, columns * width)
