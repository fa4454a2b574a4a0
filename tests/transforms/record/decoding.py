"""Decode videos with FFmpeg, independently of the writer."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import imageio_ffmpeg
import numpy as np
import torch


class Video(NamedTuple):
    """A decoded video: frames ``[T, H, W, 3]`` uint8, and frames per second."""

    frames: torch.Tensor
    fps: float


def decoded(file: Path) -> Video:
    # Each frame once, instead of as many as a steady rate has: the times of a GIF are hundredths of a second.
    reader = imageio_ffmpeg.read_frames(str(file), output_params=["-fps_mode", "passthrough"])
    about = next(reader)
    width, height = about["size"]
    frames = [np.frombuffer(frame, np.uint8).reshape(height, width, 3) for frame in reader]
    return Video(torch.from_numpy(np.stack(frames)), about["fps"])


def error(frame: torch.Tensor, expected: torch.Tensor) -> float:
    """The mean difference of two images, in parts of the brightest value."""
    return float((frame.double() - expected.double()).abs().mean() / 255)
