"""Helpers of the commands: integer arguments, the error of wrong input, aligned tables and JSON."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence


class UsageError(Exception):
    """The input is wrong. The text is printed in one line, and the exit status is 2."""


def positive(text: str) -> int:
    """Parse an integer of at least 1: a `type=` for argparse."""
    return _integer(text, minimum=1)


def natural(text: str) -> int:
    """Parse an integer of at least 0: a `type=` for argparse."""
    return _integer(text, minimum=0)


def _integer(text: str, *, minimum: int) -> int:
    if text.isdecimal() and int(text) >= minimum:
        return int(text)
    kind = "a positive integer" if minimum else "an integer of at least 0"
    raise argparse.ArgumentTypeError(f"expected {kind}, got {text!r}")


def one_line(error: BaseException | str) -> str:
    """Return the text of an error in one line, or the name of its class if it has no text."""
    text = str(error) or type(error).__name__
    return " ".join(text.split())


def print_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print rows below a header in capitals, bold on a terminal. Columns are as wide as needed, without wrapping."""
    lines = [[name.upper() for name in header], *rows]
    widths = [max(len(line[column]) for line in lines) for column in range(len(header))]
    padded = ("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) for line in lines)
    first, *rest = (line.rstrip() for line in padded)
    print("\n".join([f"\033[1m{first}\033[0m" if sys.stdout.isatty() else first, *rest]))


def print_pairs(entries: Mapping[str, str], *, width: int = 0, indent: str = "") -> None:
    """Print names and values in two columns, the first at least `width` characters wide."""
    width = max([width, *map(len, entries)])
    print("\n".join(f"{indent}{name.ljust(width)}  {value}" for name, value in entries.items()))


def print_json(value: object) -> None:
    """Print a value as JSON."""
    import json

    print(json.dumps(value, indent=2))
