"""Videos as files: ``.mp4`` (H.264) and ``.gif``."""

from __future__ import annotations

from .frames import grid, hwc_frames, layout_of
from .writer import VideoWriter, write_video

__all__ = ["VideoWriter", "grid", "hwc_frames", "layout_of", "write_video"]
