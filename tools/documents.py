"""Find programs and commands in documents."""

from __future__ import annotations

import re
from doctest import ELLIPSIS, OutputChecker
from pathlib import Path

_BLOCK = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_PROGRAM = re.compile(
    r"^```python\n(?P<program>.*?)^```$(?:\n\n```text\n(?P<text>.*?)^```$)?", re.DOTALL | re.MULTILINE
)
# The fence of a block with a language has text behind it, so a fence alone begins or ends one.
_COMMANDS = re.compile(r"^```\n((?:(?!```).*\n)+)```$(?=\n\n|\n*\Z)", re.MULTILINE)


def blocks(document: Path) -> list[str]:
    """Return all Python blocks of a document."""
    return _BLOCK.findall(document.read_text(encoding="utf-8"))


def programs(document: Path) -> list[tuple[str, str | None]]:
    """Return all Python blocks of a document, each with the ``text`` block behind it, which is what it prints."""
    found = _PROGRAM.finditer(document.read_text(encoding="utf-8"))
    return [(match["program"], match["text"]) for match in found]


def prints(expected: str, printed: str) -> bool:
    """Whether a program prints what its document says; ``...`` in the document stands for any text."""
    return OutputChecker().check_output(expected, printed, ELLIPSIS)


def shell_blocks(document: Path, heading: str = "") -> list[str]:
    """Return the blocks of commands, which name no language; only those of a section if a heading is given."""
    text = document.read_text(encoding="utf-8")
    if heading:
        text = text.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    return _COMMANDS.findall(text)


def program(document: Path, name: str) -> str:
    """Return the block whose first line is ``# name``."""
    return next(block for block in blocks(document) if block.startswith(f"# {name}\n"))
