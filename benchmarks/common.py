"""Paired timing: contestants take turns in short slices; medians are compared.

Other work on the machine slows down all contestants of a round equally, so ratios are reliable even if seconds are not.
"""

from __future__ import annotations

import json
import os
import statistics
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path

from rich.console import Console
from rich.table import Table

__all__ = ["Contest", "show", "write_figures"]


@dataclass
class Contest:
    """Functions that run a slice of work and return a figure.

    Figures are seconds per step, or frames per second.

    Args:
        title: title of the table.
        unit: unit of the figures.
    """

    title: str
    unit: str
    entries: dict[str, Callable[[], float]] = field(default_factory=dict)
    figures: dict[str, list[float]] = field(default_factory=dict)

    def add(self, name: str, slice_: Callable[[], float]) -> None:
        """Add a contestant."""
        self.entries[name] = slice_

    def run(self, rounds: int = 9) -> dict[str, float]:
        """Run all contestants in turns, after a warm-up round. Every second round is in reverse order.

        Returns the median of each.
        """
        entries = list(self.entries.items())
        for _, slice_ in entries:
            slice_()
        for number in range(rounds):
            # What ran before a slice changes its speed, by the clock of the cores and the caches.
            for name, slice_ in entries[:: -1 if number % 2 else 1]:
                self.figures.setdefault(name, []).append(slice_())
        return self.medians()

    def medians(self) -> dict[str, float]:
        """The median of each contestant."""
        return {name: statistics.median(values) for name, values in self.figures.items()}


def show(title: str, columns: list[str], rows: list[list[str]]) -> None:
    """Print a table, with full width even if the output is not a terminal."""
    table = Table(title=title, title_justify="left")
    for index, name in enumerate(columns):
        table.add_column(name, justify="left" if index == 0 else "right", no_wrap=True)
    for row in rows:
        table.add_row(*row)
    console = Console()
    Console(width=max(console.width, 120)).print(table)


def write_figures(path: str, title: str, medians: dict[str, float], *, unit: str, rounds: int, libraries: str) -> None:
    """Write the medians of a contest to a JSON file, beside those of other contests that are there.

    Args:
        path: the file.
        title: the key of the contest.
        medians: the median of each contestant.
        unit: unit of the medians.
        rounds: number of slices of each contestant.
        libraries: names of distributions, separated by spaces, whose versions are written too.
    """
    file = Path(path)
    contests = json.loads(file.read_text()) if file.exists() else {}
    contests[title] = {
        "unit": unit,
        "rounds": rounds,
        "cores": len(os.sched_getaffinity(0)),
        "versions": {name: version(name) for name in libraries.split()},
        "medians": {name: round(value, 1) for name, value in medians.items()},
    }
    file.write_text(json.dumps(contests, indent=1) + "\n")
