"""Pages, docstrings, help texts and errors use none of the phrases in phrases.toml."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from tools.workspace import ROOT, read_toml

PHRASES = {
    phrase: instead
    for section in read_toml(Path(__file__).parent / "phrases.toml").values()
    for phrase, instead in section.items()
}
PATTERN = re.compile("|".join(f"(?:{phrase})" for phrase in PHRASES), re.IGNORECASE)
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("packages/**/README.md")])
#: Without the doubles of libraries, whose errors are worded as the library words them.
MODULES = sorted(
    path
    for path in [*ROOT.glob("packages/**/src/**/*.py"), *ROOT.glob("docs/examples/*.py")]
    if "doubles" not in path.parts
)


def found(text: str) -> list[str]:
    """The phrases in a text, each with the words to write instead."""
    text = " ".join(text.split())
    hits = {match.group() for match in PATTERN.finditer(text)}
    instead = {hit: next(PHRASES[each] for each in PHRASES if re.search(each, hit, re.IGNORECASE)) for hit in hits}
    return [f"{hit!r}: write {words!r}" for hit, words in sorted(instead.items())]


def prose(page: Path) -> str:
    """The text of a page without its blocks of code."""
    return re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)


def texts(module: Path) -> str:
    """All strings of a module: docstrings, help texts and errors."""
    tree = ast.parse(module.read_text(encoding="utf-8"))
    return "\n\n".join(
        node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)
    )


@pytest.mark.parametrize(
    ("text", "phrase"),
    [("Return what\n    there is.", "what there is"), ("It is handed on to it.", "handed on")],
)
def test_a_phrase_is_found_across_lines(text, phrase):
    assert [hit.partition(":")[0] for hit in found(text)] == [repr(phrase.lower())]


def test_pages_use_no_banned_phrase():
    assert {str(page.relative_to(ROOT)): hits for page in PAGES if (hits := found(prose(page)))} == {}


def test_docstrings_help_and_errors_use_no_banned_phrase():
    assert {str(module.relative_to(ROOT)): hits for module in MODULES if (hits := found(texts(module)))} == {}
