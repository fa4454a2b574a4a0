"""Numbers as arguments of commands."""

from __future__ import annotations

import argparse


def positive(text: str) -> int:
    """An integer of at least 1."""
    number = natural(text)
    if number == 0:
        raise argparse.ArgumentTypeError(f"expected a positive integer, got {text!r}")
    return number


def natural(text: str) -> int:
    """An integer of at least 0."""
    try:
        number = int(text)
    except ValueError:
        number = -1
    if number < 0:
        raise argparse.ArgumentTypeError(f"expected a positive integer, got {text!r}")
    return number
