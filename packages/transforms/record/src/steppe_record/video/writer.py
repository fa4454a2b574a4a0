"""VideoWriter: write frames to a video file, one by one."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import torch

from steppe.errors import ClosedError, SpecError, StateError

from ..files import NewFile
from .encoders import Encoder, GifEncoder, Mp4Encoder
from .frames import hwc_frames

__all__ = ["VideoWriter", "check_video_file", "write_video"]

_ENCODERS: dict[str, type[Encoder]] = {".mp4": Mp4Encoder, ".gif": GifEncoder}


class VideoWriter:
    """Write frames to a video file, ``.mp4`` or ``.gif``.

    The file gets its name when the writer is closed, so a process that dies leaves no broken video. The writer is a
    context manager; after an error in its block, no file is left.

    >>> import numpy as np
    >>> from pathlib import Path
    >>> from steppe_record import VideoWriter
    >>> with VideoWriter("fade.gif", fps=10) as video:
    ...     for brightness in (0, 100, 200):
    ...         video.write(np.full((16, 16, 3), brightness, np.uint8))
    >>> Path("fade.gif").exists()
    True

    Args:
        file: name of the video, whose suffix decides the format. Missing folders are created.
        fps: frames per second, a positive number. At most 50 for a GIF, because players show faster ones slowly.
        overwrite: replace an existing file.
        video_codec: FFmpeg's name of the codec of an mp4.
        options: options of the codec, such as ``{"crf": "20", "preset": "medium"}``, and ``"pixel_format"``.

    Raises:
        SpecError: the suffix or ``fps`` is invalid.
        FileExists: the file exists, and ``overwrite`` is False.
    """

    def __init__(
        self,
        file: str | os.PathLike[str],
        fps: float = 30,
        *,
        overwrite: bool = False,
        video_codec: str | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        encoder = check_video_file(file)
        if not isinstance(fps, (int, float, Fraction)) or isinstance(fps, bool) or not 0 < fps < float("inf"):
            raise SpecError(f"fps must be a positive number, found {fps!r}.")
        self._encoder: Encoder = encoder(Fraction(fps).limit_denominator(1001), video_codec, dict(options or {}))
        self._target = NewFile(file, overwrite=overwrite)
        self._size: tuple[int, ...] | None = None
        self._open = True
        #: Number of written frames.
        self.frames = 0

    def write(self, frame: Any) -> None:
        """Add a frame ``[H, W, 3]`` uint8, a tensor or an array, always of the same size.

        Raises:
            SpecError: the frame has another shape or dtype, or a size that the format does not support.
            ClosedError: the writer is closed.
        """
        if not self._open:
            raise ClosedError(f"{self!r} is closed.")
        array = frame.cpu().numpy() if isinstance(frame, torch.Tensor) else np.asarray(frame)
        if array.ndim != 3 or array.shape[-1] != 3 or array.dtype != np.uint8:
            raise SpecError(f"A frame is [H, W, 3] of uint8. Found {list(array.shape)} of {array.dtype}.")
        if self._size is None:
            self._encoder.open(str(self._target.path), array.shape[0], array.shape[1])
            self._size = array.shape
        if array.shape != self._size:
            raise SpecError(
                f"All frames of a video must have one size. Found {_size(array.shape)} after {_size(self._size)}."
            )
        self._encoder.write(np.ascontiguousarray(array))
        self.frames += 1

    def close(self) -> None:
        """Complete the video and give it its name. Calling it again does nothing.

        Raises:
            StateError: no frame was written.
            FileExists: a file of this name was created in the meantime.
        """
        if not self._open:
            return
        if not self.frames:
            self.discard()
            raise StateError(f"{str(self._target.file)!r} was not written, because no frame was added.")
        self._open = False
        try:
            self._encoder.close()
        except BaseException:
            self._target.discard()
            raise
        self._target.finish()

    def discard(self) -> None:
        """Close the writer and remove its file."""
        if self._open:
            self._open = False
            self._encoder.abandon()
            self._target.discard()

    def __enter__(self) -> VideoWriter:
        return self

    def __exit__(self, kind: Any, *_: Any) -> None:
        if kind is None:
            self.close()
        else:
            self.discard()

    def __del__(self) -> None:
        if getattr(self, "_open", False):
            self.discard()

    def __repr__(self) -> str:
        return f"VideoWriter({str(self._target.file)!r})"


def write_video(file: str | os.PathLike[str], video: Any, fps: float = 30, **kwargs: Any) -> None:
    """Write a video to a file.

    >>> from pathlib import Path
    >>> from steppe import make_env
    >>> from steppe_record import write_video
    >>> data = make_env("gym:CartPole-v1", from_pixels=True).rollout(5)
    >>> write_video("cartpole.gif", data["pixels"].permute(0, 3, 1, 2), fps=10)
    >>> Path("cartpole.gif").stat().st_size > 0
    True

    Args:
        file: ``.mp4`` or ``.gif``.
        video: ``[T, C, H, W]`` or ``[N, T, C, H, W]`` uint8, where C is 1 or 3.
        fps: frames per second.
        **kwargs: arguments of :class:`VideoWriter`.
    """
    with VideoWriter(file, fps, **kwargs) as writer:
        _write_all(writer, hwc_frames(video))


def _write_all(writer: VideoWriter, frames: Iterable[Any]) -> None:
    for frame in frames:
        writer.write(frame)


def check_video_file(file: str | os.PathLike[str]) -> type[Encoder]:
    """Return the encoder for a file of this name.

    Raises:
        SpecError: the name does not end in ``.mp4`` or ``.gif``.
    """
    suffix = Path(file).suffix.lower()
    if suffix not in _ENCODERS:
        raise SpecError(f"The name of a video ends in {' or '.join(_ENCODERS)}, found {str(file)!r}.")
    return _ENCODERS[suffix]


def _size(shape: tuple[int, ...]) -> str:
    return f"{shape[1]}x{shape[0]}"
