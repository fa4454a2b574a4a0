"""Write a page for each environment library: its gallery, its spaces, and the README of its package."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from tools.workspace import ROOT, Package, packages

from . import links

__all__ = ["GALLERY", "index", "library_packages", "with_gallery"]

#: Pictures and their manifest, written by tools/gallery.py.
GALLERY = ROOT / "docs/gallery"


def library_packages() -> Iterator[Package]:
    """Yield the packages that wrap a library, by name."""
    for package in packages():
        if package.entry_points("steppe.envs") and package.path.parent.name == "envs":
            yield package


def pictures(package: Package) -> list[dict[str, Any]]:
    """Return the entries of the manifest for the environments of a package."""
    manifest = GALLERY / "manifest.json"
    if not manifest.exists():
        return []
    namespaces = set(package.entry_points("steppe.envs"))
    entries = json.loads(manifest.read_text(encoding="utf-8"))["environments"]
    return [entry for entry in entries if entry["id"].partition(":")[0] in namespaces]


def with_gallery(text: str, package: Package) -> str:
    """Return a README with the pictures of its environments and their spaces before its first section."""
    entries = pictures(package)
    if not entries:
        return text
    cards = [
        f":::{{grid-item-card}} `{entry['id']}`\n:img-top: /gallery/{entry['file']}\n:img-alt: {entry['alt']}\n"
        f"{_policy(entry)}\n:::"
        for entry in entries
    ]
    gallery = "\n".join(["## Gallery\n", "::::{grid} 2 3 4 4\n:gutter: 2\n", *cards, "::::\n"])
    rows = [f"| `{each['id']}` | {each['observation']} | {each['action']} |" for each in entries]
    spaces = "\n".join(
        ["## Observations and actions\n", "| Environment | Observation | Action |", "|---|---|---|", *rows, "\n"]
    )
    before, heading, after = text.partition("\n## ")
    return f"{before}\n{gallery}\n{spaces}{heading.strip(chr(10)) and chr(10) + '## '}{after}"


def _policy(entry: dict[str, Any]) -> str:
    """Return the text of a card: what chose the actions, with the command that trained it."""
    return f"trained: `{entry['trained'].partition(' --save')[0]}`" if "trained" in entry else "random actions"


def index(intro: str, all_packages: list[Package]) -> str:
    """Return the page that lists the libraries."""
    parts = [intro, "| Namespace | Package | Contents |", "|---|---|---|"]
    for package in all_packages:
        text = (package.path / "README.md").read_text(encoding="utf-8")
        first = text.split("\n\n")[1].replace("\n", " ")
        spaces = ", ".join(f"`{name}:`" for name in package.entry_points("steppe.envs"))
        parts.append(f"| {spaces} | [{links.title(text)}]({package.short}.md) | {first} |")
    names = "\n".join(package.short for package in all_packages)
    parts.append(f"\n```{{toctree}}\n:hidden:\n\n{names}\n```\n")
    return "\n".join(parts)
