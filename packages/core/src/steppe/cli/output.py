"""What the commands share: aligned tables, and the error of a wrong argument."""

from __future__ import annotations

import sys
from collections.abc import Sequence


class UsageError(Exception):
    """Wrong input, in one line; the command ends with status 2."""


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Rows under a header in columns as wide as they need: a pipe should get every word, so nothing is wrapped."""
    lines = [header, *rows]
    widths = [max(len(line[column]) for line in lines) for column in range(len(header))]
    padded = ("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) for line in lines)
    return "\n".join(line.rstrip() for line in padded)


def one_line(error: BaseException | str) -> str:
    """A text without its line ends."""
    text = str(error) or type(error).__name__
    return " ".join(text.split())


def bold(text: str) -> str:
    """The text in bold type, where it goes to a terminal."""
    return f"\033[1m{text}\033[0m" if sys.stdout.isatty() else text


def print_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table, its header in bold."""
    head, *rest = table([name.upper() for name in header], rows).split("\n")
    print("\n".join([bold(head), *rest]))


def print_json(value: object) -> None:
    """Print a value as JSON."""
    import json

    print(json.dumps(value, indent=2))
