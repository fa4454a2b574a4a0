"""Paired timing: contestants take turns in short slices, and medians are compared.

A machine that does other work slows all contestants of a round alike, so ratios hold where seconds do not.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass, field

from rich.console import Console
from rich.table import Table

__all__ = ["Contest", "show"]


@dataclass
class Contest:
    """Functions that each do a slice of work and return a figure: seconds a step, or frames a second.

    Args:
        title: what is compared.
        unit: unit of the figures.
    """

    title: str
    unit: str
    entries: dict[str, Callable[[], float]] = field(default_factory=dict)
    figures: dict[str, list[float]] = field(default_factory=dict)

    def add(self, name: str, slice_: Callable[[], float]) -> None:
        """Enter a contestant."""
        self.entries[name] = slice_

    def run(self, rounds: int = 9) -> dict[str, float]:
        """Let all take turns, after one round to warm up; return the median of each."""
        for slice_ in self.entries.values():
            slice_()
        for _ in range(rounds):
            for name, slice_ in self.entries.items():
                self.figures.setdefault(name, []).append(slice_())
        return self.medians()

    def medians(self) -> dict[str, float]:
        """The median of each contestant."""
        return {name: statistics.median(values) for name, values in self.figures.items()}


def show(title: str, columns: list[str], rows: list[list[str]]) -> None:
    """Print a table, whole also where output is not a terminal."""
    table = Table(title=title, title_justify="left")
    for index, name in enumerate(columns):
        table.add_column(name, justify="left" if index == 0 else "right", no_wrap=True)
    for row in rows:
        table.add_row(*row)
    console = Console()
    Console(width=max(console.width, 120)).print(table)
