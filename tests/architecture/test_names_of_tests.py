"""The name of a test is short enough to read in a report; its docstring says the rest."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tools.workspace import ROOT

LONGEST = 60


def long_names(source: str) -> Iterator[str]:
    """Lines and names of the test functions whose names are too long."""
    for node in ast.walk(ast.parse(source)):
        is_test = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_")
        if is_test and len(node.name) > LONGEST:
            yield f"{node.lineno}: {node.name} ({len(node.name)})"


def test_test_names_have_at_most_60_characters() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{name}"
        for path in sorted((ROOT / "tests").rglob("*.py"))
        for name in long_names(path.read_text(encoding="utf-8"))
    ]

    assert found == [], "shorten the name, and state the behaviour in full in a docstring"


def test_long_names_are_found_in_modules_and_classes() -> None:
    fits, long = "test_".ljust(LONGEST, "a"), "test_".ljust(LONGEST + 1, "b")
    source = f"def {fits}(): ...\ndef {long}(): ...\nclass TestIt:\n    async def {long}(self): ...\n"

    assert list(long_names(source)) == [f"2: {long} (61)", f"4: {long} (61)"]
