"""Encoders of frames as H.264 and GIF, with PyAV (FFmpeg's libraries)."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np

from steppe.errors import SpecError

__all__ = ["Encoder", "GifEncoder", "Mp4Encoder"]


class Encoder:
    """Base class of encoders of frames into one file.

    Args:
        fps: frames per second.
        codec: FFmpeg's name of the codec. None: the codec of the format.
        options: options of the codec.
    """

    container = ""
    codec = ""

    def __init__(self, fps: Fraction, codec: str | None, options: dict[str, Any]) -> None:
        self.fps = fps
        self.codec = codec or self.codec
        self.pixel_format = str(options.pop("pixel_format", ""))
        self.options = {name: str(value) for name, value in options.items()}
        self._file: Any = None
        self._stream: Any = None

    def open(self, path: str, height: int, width: int) -> None:
        """Open a file for frames of this size."""
        import av

        self._file = av.open(path, "w", format=self.container)
        try:
            self._stream = self._file.add_stream(self.codec, rate=self.fps, options=self.options)
        except Exception as error:
            raise SpecError(f"FFmpeg has no codec {self.codec!r} for {self.container}: {error}") from error
        self._stream.height, self._stream.width = height, width

    def write(self, frame: np.ndarray[Any, Any]) -> None:
        """Add a frame ``[H, W, 3]`` uint8."""
        raise NotImplementedError

    def close(self) -> None:
        """Write the remaining frames and close the file."""
        self._mux(None)
        self._file.close()

    def abandon(self) -> None:
        """Close the file without the remaining frames."""
        if self._file is not None:
            self._file.close()

    def _mux(self, frame: Any) -> None:
        for packet in self._stream.encode(frame):
            self._file.mux(packet)


class Mp4Encoder(Encoder):
    """Encode H.264 in an mp4.

    Colours have half the resolution (``yuv420p``), which all players support.
    """

    container = "mp4"
    codec = "libx264"

    def __init__(self, fps: Fraction, codec: str | None, options: dict[str, Any]) -> None:
        super().__init__(fps, codec, {"crf": "20", **options} if codec in (None, "libx264") else options)
        self.pixel_format = self.pixel_format or "yuv420p"

    def open(self, path: str, height: int, width: int) -> None:
        if self.pixel_format == "yuv420p" and (height % 2 or width % 2):
            raise SpecError(
                f"H.264 needs an even width and height, found {width}x{height}. Crop the frames "
                f"(VideoRecorder(..., center_crop={min(height, width) // 2 * 2})), write a .gif, or pass "
                "options={'pixel_format': 'yuv444p'}, which some players do not support."
            )
        super().open(path, height, width)
        self._stream.pix_fmt = self.pixel_format

    def write(self, frame: np.ndarray[Any, Any]) -> None:
        import av

        self._mux(av.VideoFrame.from_ndarray(frame, format="rgb24"))


class GifEncoder(Encoder):
    """Encode a GIF that repeats, with the best 256 colours of each frame."""

    container = "gif"
    codec = "gif"

    def __init__(self, fps: Fraction, codec: str | None, options: dict[str, Any]) -> None:
        if fps > 50:
            raise SpecError(f"A GIF shows at most 50 frames per second, found fps={float(fps):g}. Write an .mp4.")
        if codec is not None:
            raise SpecError(f"A GIF has a fixed codec, found video_codec={codec!r}. Leave it out.")
        super().__init__(fps, codec, options)
        self._count = 0

    def open(self, path: str, height: int, width: int) -> None:
        import av

        super().open(path, height, width)
        self._stream.pix_fmt = "pal8"
        graph = av.filter.Graph()
        source = graph.add_buffer(width=width, height=height, format="rgb24", time_base=1 / self.fps)
        split = graph.add("split")
        palette = graph.add("palettegen", "stats_mode=single")
        use = graph.add("paletteuse", "new=1")
        sink = graph.add("buffersink")
        source.link_to(split)
        split.link_to(use, 0, 0)
        split.link_to(palette, 1, 0)
        palette.link_to(use, 0, 1)
        use.link_to(sink)
        graph.configure()
        self._graph = graph

    def write(self, frame: np.ndarray[Any, Any]) -> None:
        import av

        image = av.VideoFrame.from_ndarray(frame, format="rgb24")
        image.pts, image.time_base = self._count, 1 / self.fps
        self._count += 1
        self._graph.vpush(image)
        self._pull()

    def close(self) -> None:
        self._graph.vpush(None)
        self._pull()
        super().close()

    def _pull(self) -> None:
        import av

        while True:
            try:
                image = self._graph.vpull()
            except (av.error.BlockingIOError, av.error.EOFError):
                return
            self._mux(image)
