"""Check the built site: every link, anchor and picture leads somewhere, and every page is reached.

python -m tools.site.check HTML
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

__all__ = ["Page", "problems", "read_pages"]

#: Pages that Sphinx writes, and that need no link.
_OF_SPHINX = {"genindex.html", "py-modindex.html", "search.html"}


@dataclass
class Page(HTMLParser):
    """A page of the site: its anchors, and the targets of its links and pictures."""

    path: Path
    ids: set[str] = field(default_factory=set)
    targets: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()
        self.feed(self.path.read_text(encoding="utf-8"))

    def __hash__(self) -> int:
        return hash(self.path)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value for name, value in attrs if value}
        if "id" in values:
            self.ids.add(values["id"])
        target = values.get("href") if tag in ("a", "link") else values.get("src")
        if target:
            self.targets.append(target)


def read_pages(folder: Path) -> dict[Path, Page]:
    """Read all pages of a site."""
    return {path.resolve(): Page(path) for path in sorted(folder.rglob("*.html"))}


def problems(folder: Path) -> Iterator[str]:
    """Yield a sentence for each target that does not exist, and for each page that no other page links to."""
    pages = read_pages(folder)
    linked = set()
    for path, page in pages.items():
        for target in page.targets:
            parts = urlsplit(target)
            if parts.scheme or parts.netloc:
                continue
            reached = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            reached = reached / "index.html" if reached.is_dir() else reached
            if not reached.exists():
                yield f"{page.path.relative_to(folder)}: {target} does not exist"
            elif reached in pages:
                if reached != path:
                    linked.add(reached)
                if parts.fragment and unquote(parts.fragment) not in pages[reached].ids:
                    yield f"{page.path.relative_to(folder)}: {target} names a missing anchor"
    for path, page in pages.items():
        if path not in linked and path.name not in _OF_SPHINX and "_static" not in path.parts:
            yield f"{page.path.relative_to(folder)}: no page links to it"


if __name__ == "__main__":
    found = list(problems(Path(sys.argv[1])))
    print("\n".join(found) or "All links, anchors and pictures exist.")
    sys.exit(bool(found))
