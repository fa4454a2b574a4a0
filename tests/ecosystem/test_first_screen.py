"""README's first screen, and the length of the examples."""

from __future__ import annotations

import re

from tools.workspace import ROOT


def test_the_table_of_plugins_begins_after_twenty_lines():
    lines = (ROOT / "README.md").read_text(encoding="utf-8").splitlines()

    assert lines.index("## Plugins") <= 20


def test_the_first_screen_shows_a_picture_and_a_chart():
    screen = (ROOT / "README.md").read_text(encoding="utf-8").partition("## Plugins")[0]

    pictures = re.findall(r"!\[[^\]]+\]\(([^)]+)\)", screen)
    assert [(ROOT / path).suffix for path in pictures if (ROOT / path).is_file()] == [".gif", ".png"]


def test_each_example_is_one_file_of_less_than_200_lines():
    lengths = {path.name: len(path.read_text().splitlines()) for path in (ROOT / "docs/examples").glob("*.py")}

    assert {name: lines for name, lines in lengths.items() if lines >= 200} == {}
