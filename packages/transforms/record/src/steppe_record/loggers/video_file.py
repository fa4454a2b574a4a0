"""VideoFileLogger: write all videos into one file, in sequence."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from steppe.errors import NotSupported

from .base import Logger

__all__ = ["VideoFileLogger"]


class VideoFileLogger(Logger):
    """Write all logged videos into one file, in sequence; it logs nothing else.

    The file gets its name at ``close``. Frames are not kept in memory.

    >>> import torch
    >>> from steppe_record import VideoFileLogger
    >>> logger = VideoFileLogger("run.gif", fps=10)
    >>> logger.log_video("episode", torch.zeros(1, 5, 3, 16, 16, dtype=torch.uint8))
    >>> logger.log_video("episode", torch.zeros(1, 3, 3, 16, 16, dtype=torch.uint8))
    >>> logger.frames
    8
    >>> logger.close()

    Args:
        file: ``.mp4`` or ``.gif``.
        fps: frames per second.
        overwrite: replace an existing file.
        size: width and height of the video; frames are resized to it. None: the size of the frames.
        pad_to_even: repeat the last row or column of frames whose height or width is odd, which H.264 does not support.
        **kwargs: arguments of :class:`VideoWriter`.
    """

    def __init__(
        self,
        file: str | os.PathLike[str],
        fps: float = 30,
        *,
        overwrite: bool = False,
        size: tuple[int, int] | None = None,
        pad_to_even: bool = False,
        **kwargs: Any,
    ) -> None:
        from ..video import VideoWriter

        self._writer = VideoWriter(file, fps, overwrite=overwrite, **kwargs)
        self._size, self._pad_to_even = size, pad_to_even
        super().__init__(Path(file).stem, str(Path(file).parent))

    def _create_experiment(self) -> Any:
        return self._writer

    @property
    def frames(self) -> int:
        """The number of written frames."""
        return self._writer.frames

    def log_video(self, name: str, video: Any, step: int | None = None, **kwargs: Any) -> None:
        """Append a video; see :meth:`Logger.log_video`. All other arguments are ignored."""
        import torch  # imported here, because looking up a logger must not load torch

        from ..video import hwc_frames

        frames = hwc_frames(video)
        if self._size is not None:
            frames = _resized(frames, *self._size)
        if self._pad_to_even:
            for dim in (1, 2):
                last = frames.narrow(dim, frames.shape[dim] - 1, frames.shape[dim] % 2)
                frames = torch.cat([frames, last], dim)
        for frame in frames:
            self._writer.write(frame)

    def log_scalar(self, name: str, value: float, step: int | None = None) -> None:
        raise self._only_videos_error()

    def log_hparams(self, cfg: Any) -> None:
        raise self._only_videos_error()

    def log_histogram(self, name: str, data: Any, **kwargs: Any) -> None:
        raise self._only_videos_error()

    def close(self) -> None:
        self._writer.close()

    def discard(self) -> None:
        """Remove the file."""
        self._writer.discard()

    def __exit__(self, kind: Any, *_: Any) -> None:
        if kind is None:
            self.close()
        else:
            self.discard()

    def _only_videos_error(self) -> NotSupported:
        return NotSupported("VideoFileLogger logs only videos. Use a CSVLogger for numbers.")


def _resized(frames: Any, width: int, height: int) -> Any:
    """Resize frames ``[T, H, W, 3]`` uint8, smoothly."""
    from torch.nn.functional import interpolate

    images = frames.movedim(-1, 1).float()
    images = interpolate(images, (height, width), mode="bilinear", antialias=True, align_corners=False)
    return images.round().clamp(0, 255).to(frames.dtype).movedim(1, -1)
