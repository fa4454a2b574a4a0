"""Folders that imitate environments with few installed packages."""

from __future__ import annotations

import sys
from pathlib import Path

__all__ = ["link_libraries"]


def link_libraries(site: Path, hidden: tuple[str, ...]) -> Path:
    """Link installed packages into a folder, except editable and ``hidden`` ones."""
    for folder in map(Path, sys.path):
        if folder.name not in ("site-packages", "dist-packages"):
            continue
        for entry in folder.iterdir():
            left_out = entry.name.startswith(hidden) or entry.suffix == ".pth"
            if not left_out and not (site / entry.name).exists():
                (site / entry.name).symlink_to(entry)
    return site
