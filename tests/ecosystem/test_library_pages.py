"""The page of each environment library says what a user looks up first."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from tools.workspace import ROOT, Package, packages

LIBRARIES = [
    package
    for package in packages()
    if package.path.parent == ROOT / "packages/envs"
    and "steppe.envs" in package.pyproject["project"].get("entry-points", {})
]


def page(package: Package) -> str:
    return (package.path / "README.md").read_text(encoding="utf-8")


def sections(text: str, title: str) -> list[str]:
    """Return the sections whose heading begins with ``title``."""
    return [part for part in re.split(r"^## ", text, flags=re.MULTILINE)[1:] if part.startswith(title)]


def rows(text: str) -> list[str]:
    """Return the rows of the tables of the sections about entries."""
    return [line for part in sections(text, "Find an entry") for line in part.splitlines() if line.startswith("| ")]


def has_row(text: str, word: str) -> bool:
    found = sections(text, "Find an entry")
    return bool(found) and all(any(word in row for row in rows("## " + part)) for part in found)


def names_ids(package: Package, text: str) -> bool:
    return all(f"`steppe envs {name}`" in text for name in package.pyproject["project"]["entry-points"]["steppe.envs"])


#: What each page has, and how the text shows it.
PARTS: dict[str, Callable[[Package, str], bool]] = {
    "install (pip install 'steppe[...]')": lambda package, text: f"pip install 'steppe[{package.short}]'" in text,
    "ids (`steppe envs NAMESPACE`)": names_ids,
    "observations (a row of 'Find an entry')": lambda package, text: has_row(text, "observation"),
    "actions (a row of 'Find an entry')": lambda package, text: has_row(text, "action"),
    "groups (a word on them in 'Find an entry')": lambda package, text: (
        bool(sections(text, "Find an entry")) and all("group" in part for part in sections(text, "Find an entry"))
    ),
    "what differs from TorchRL ('Differences from TorchRL's wrapper')": lambda package, text: bool(
        sections(text, "Differences from TorchRL's wrapper")
    ),
}


def missing_parts(package: Package, text: str) -> list[str]:
    return [f"{package.short}/README.md lacks {part}" for part, has in PARTS.items() if not has(package, text)]


@pytest.mark.parametrize("package", LIBRARIES, ids=lambda package: package.short)
def test_each_library_page_has_its_six_parts(package: Package) -> None:
    assert missing_parts(package, page(package)) == []


@pytest.mark.parametrize(
    ("taken", "part"),
    [
        (r"^\| `\(group, \"action\"\).*\n", "actions"),
        (r"^## Differences.*\n", "what differs from TorchRL"),
        (r"`steppe envs vmas`", "ids"),
    ],
)
def test_a_missing_part_is_named_with_its_page(taken: str, part: str) -> None:
    package = next(each for each in LIBRARIES if each.short == "vmas")
    text, changes = re.subn(taken, "", page(package), flags=re.MULTILINE)

    (missing,) = missing_parts(package, text)

    assert changes == 1
    assert missing.startswith(f"vmas/README.md lacks {part} ")
