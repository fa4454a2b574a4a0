"""Programs in documents: the code blocks that begin with a comment which names their file."""

from __future__ import annotations

import re
from pathlib import Path

_BLOCK = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def blocks(document: Path) -> list[str]:
    """Every Python block of a document."""
    return _BLOCK.findall(document.read_text(encoding="utf-8"))


def program(document: Path, name: str) -> str:
    """The block whose first line is ``# name``."""
    return next(block for block in blocks(document) if block.startswith(f"# {name}\n"))
