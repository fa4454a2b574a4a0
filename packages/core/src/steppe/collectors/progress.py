"""A live line that says how far a collector is."""

from __future__ import annotations

import time
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

__all__ = ["ProgressLine"]


class ProgressLine:
    """Shows frames, the end if there is one, and frames per second, from the first batch to the last.

    Args:
        name: what stands in front.
        total: frames in all; None for no end.
        console: where to write; standard error by default.
    """

    def __init__(self, name: str, total: int | None, console: Any = None) -> None:
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[speed]:,.0f} frames/s"),
            TimeRemainingColumn(),
            console=console or Console(stderr=True),
        )
        self._task = self._progress.add_task(name, total=total, speed=0.0)
        self._began: float | None = None
        self._frames = 0

    def advance(self, frames: int) -> None:
        """Count frames that have been collected."""
        if self._began is None:
            self._began = time.perf_counter()
            self._progress.start()
        self._frames += frames
        seconds = time.perf_counter() - self._began
        self._progress.update(self._task, advance=frames, speed=self._frames / seconds if seconds else 0.0)

    def stop(self) -> None:
        """Leave the line as it is. Calling it again does nothing."""
        self._progress.stop()
