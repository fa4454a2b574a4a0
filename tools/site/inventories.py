"""Inventories of other projects' documentation, written from a table, because the site is built without a network."""

from __future__ import annotations

import sys
import zlib
from pathlib import Path
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

__all__ = ["mapping"]


def mapping(folder: Path) -> dict[str, tuple[str, str]]:
    """Write the inventories of ``inventories.toml`` in a folder; returns the setting ``intersphinx_mapping``."""
    table = tomllib.loads((folder / "inventories.toml").read_text(encoding="utf-8"))
    return {project: (content["url"], _write(folder, project, content)) for project, content in table.items()}


def _write(folder: Path, project: str, content: dict[str, Any]) -> str:
    """Write an inventory in Sphinx' format, version 2; returns its path."""
    path = folder / f"{project}.inv"
    lines = [
        f"{name} py:{role} 1 {address} -\n"
        for role, entries in content.items()
        if role != "url"
        for name, address in entries.items()
    ]
    head = f"# Sphinx inventory version 2\n# Project: {project}\n# Version: \n"
    head += "# The remainder of this file is compressed using zlib.\n"
    path.write_bytes(head.encode() + zlib.compress("".join(lines).encode()))
    return str(path)
