"""ProgressLine: a live line with the progress of a collector."""

from __future__ import annotations

import time

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

__all__ = ["ProgressLine"]


class ProgressLine:
    """Shows the number of frames, the total if there is one, and frames per second.

    Args:
        name: the text at the beginning of the line.
        total: total number of frames; None for no end.
    """

    def __init__(self, name: str, total: int | None) -> None:
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[speed]:,.0f} frames/s"),
            TimeRemainingColumn(),
            console=Console(stderr=True),
        )
        self._task = self._progress.add_task(name, total=total, speed=0.0)
        self._start: float | None = None
        self._frames = 0

    def advance(self, frames: int) -> None:
        """Add frames to the count, and start the line at the first call."""
        if self._start is None:
            self._start = time.perf_counter()
            self._progress.start()
        self._frames += frames
        seconds = time.perf_counter() - self._start
        self._progress.update(self._task, advance=frames, speed=self._frames / seconds if seconds else 0.0)

    def stop(self) -> None:
        """Stop updating the line. Calling it again does nothing."""
        self._progress.stop()
