"""Find programs in documents: code blocks that begin with the name of a file."""

from __future__ import annotations

import re
from pathlib import Path

_BLOCK = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def blocks(document: Path) -> list[str]:
    """Return all Python blocks of a document."""
    return _BLOCK.findall(document.read_text(encoding="utf-8"))


def program(document: Path, name: str) -> str:
    """Return the block whose first line is ``# name``."""
    return next(block for block in blocks(document) if block.startswith(f"# {name}\n"))
