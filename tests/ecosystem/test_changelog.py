"""The changelog is short, and names only what exists."""

from __future__ import annotations

import re

from tools.workspace import ROOT, packages

TEXT = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
SOURCES = "\n".join(
    path.read_text(encoding="utf-8") for package in packages() for path in (package.path / "src").rglob("*.py")
)
PACKAGES = {package.name for package in packages()}


def test_the_changelog_names_only_what_exists():
    quoted = [code for code in re.findall(r"`([^`]+)`", TEXT) if "/" not in code]
    names = {name for code in quoted for name in re.findall(r"[A-Za-z_]\w{3,}", code.partition("(")[0])}

    assert [name for name in sorted(names) if not re.search(rf"\b{name}\b", SOURCES)] == []
    assert set(re.findall(r"\bsteppe-[a-z0-9-]+[a-z0-9]", TEXT)) <= PACKAGES


def test_a_release_is_described_on_one_page():
    sections = re.findall(r"^## .*\n((?:(?!^## ).*\n?)*)", TEXT, re.MULTILINE)

    assert [len(section.splitlines()) for section in sections if section.count("\n") > 100] == []


def test_entries_say_what_steppe_has():
    """No entry tells of a change that no release had: what is gone, moved or replaced."""
    first = TEXT.partition("## 0.1.0")[2].partition("\n## ")[0]

    assert re.findall(r"\b(?:is|are) gone\b|\bno longer\b|\breplaces\b|\bmoved\b", first) == []
