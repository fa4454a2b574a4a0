"""ARCHITECTURE.md names modules that exist, by basenames that say which."""

from __future__ import annotations

import re

import pytest

from tools.module_table import ARCHITECTURE, CORE

TEXT = ARCHITECTURE.read_text(encoding="utf-8")
CHANGES = TEXT.partition("## Where do I change")[2].partition("\n## ")[0]
ROWS = [line.strip("|").split("|") for line in CHANGES.splitlines() if line.startswith("| ")][1:]


def test_the_page_lists_twenty_changes():
    assert len(ROWS) >= 20


@pytest.mark.parametrize(("change", "where"), ROWS, ids=[change.strip() for change, _ in ROWS])
def test_a_change_is_in_the_module_that_the_page_names(change, where):
    names = re.findall(r"`([^`]+)`", where)
    paths = [name for name in names if "/" in name]
    assert paths
    for name in paths:
        assert (CORE / name).is_dir() if name.endswith("/") else (CORE / f"{name}.py").is_file(), name
    for name in names:
        owner, dot, method = name.partition(".")
        if dot and "/" not in name and owner[0].isupper():
            files = [CORE / f"{path}.py" for path in paths]
            assert any(re.search(rf"class {owner}\b.*def {method}\(", file.read_text(), re.DOTALL) for file in files)


def test_the_text_names_modules_that_exist():
    folders = {path.name for path in CORE.iterdir() if path.is_dir()}
    named = {name for name in re.findall(r"`([a-z_]+(?:/[a-z_]+)+)/?`", TEXT) if name.partition("/")[0] in folders}
    assert {name for name in named if not ((CORE / name).is_dir() or (CORE / f"{name}.py").is_file())} == set()
