"""Move links between files of the repository to the pages of the site."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

__all__ = ["move", "title"]

_LINK = re.compile(r"(?<!!)\[([^\]]+)\]\((?!https?://|mailto:)([^)#\s]*)(#[^)\s]*)?\)")
_NAMED = re.compile(r"`((?:docs|packages)/[^`\s]+\.md)`")
_BLOCK = re.compile(r"(^ *(?:`{3,}|:{3,}).*?^ *(?:`{3,}|:{3,})$)", re.DOTALL | re.MULTILINE)


def title(text: str) -> str:
    """Return the first heading of a Markdown page."""
    found = re.search(r"^# (.+)$", text, re.MULTILINE)
    if found is None:
        raise ValueError("The page has no heading of the first level (a line that begins with '# ').")
    return found.group(1)


def move(text: str, source: Path, page: str, pages: Mapping[Path, str], titles: Mapping[str, str]) -> str:
    """Return the text of a page with links to other pages instead of files.

    A link to a file without a page, such as a program, keeps its text and loses its target. A page that the text names
    in backticks (`` `docs/transforms.md` ``) becomes a link.

    Args:
        text: Markdown.
        source: the file that the text comes from; its links are relative to its folder.
        page: path of the page in the site, such as ``"guides/specs.md"``.
        pages: page of each file.
        titles: title of each page.
    """

    def moved(found: re.Match[str]) -> str:
        label, target, anchor = found.group(1), found.group(2), found.group(3) or ""
        if not target:
            return found.group(0)
        reached = pages.get((source.parent / target).resolve())
        if reached is None:
            return label
        # The first page stands for the README, whose sections are on several pages.
        return f"[{label}]({_relative(page, reached)}{'' if reached == 'index.md' else anchor})"

    def named(found: re.Match[str]) -> str:
        reached = pages.get((_root(pages) / found.group(1)).resolve())
        return f"[{titles[reached]}]({_relative(page, reached)})" if reached else found.group(0)

    parts = _BLOCK.split(text)
    parts[::2] = [_NAMED.sub(named, _LINK.sub(moved, part)) for part in parts[::2]]
    return "".join(parts)


def _relative(page: str, target: str) -> str:
    return PurePosixPath(os.path.relpath(target, PurePosixPath(page).parent)).as_posix()


def _root(pages: Mapping[Path, str]) -> Path:
    """Return the folder of the repository: that of CHANGELOG.md, which is a page."""
    return next(path.parent for path in pages if path.name == "CHANGELOG.md")
