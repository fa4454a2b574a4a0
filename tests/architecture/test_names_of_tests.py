"""The name of a test is a short sentence: subject, verb, result; its file is named after the module that it tests."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from tools.workspace import ROOT

CORE = ROOT / "packages/core/src/steppe"
LONGEST = 60

#: Forms without a subject (what, it, who), and phrases that a reader must translate first.
UNCLEAR = re.compile(
    r"^test_(what|who|whoever|whatever|it|those)_|_says?_so(_|$)|_as_it_(is|was)$|_that_(is|are)_none_"
    r"|_(is|are)_(that|those)_of_|_means?_nothing_|_asked_for|_anew|_can_not_|_(its|their|ones)_own_(is|are)_"
    r"|_(is|are)_told|_heard_of|_held_against_|_goes?_on(_|$)|_alike$|_whichever_|_(is|are)_there$"
)

#: Modules of the core without a test file of their name; the number goes down.
UNTESTED_BY_NAME = 7
#: The path of a step, from its action to the batch of a collector.
HEART = {
    "batch_writer",
    "chain_on_rows",
    "done",
    "next_root",
    "reset_and_step",
    "row_frames",
    "row_steps",
    "serving",
    "shard",
    "workers_backend",
}


def functions_of(source: str) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
            yield node


def unclear_names(source: str) -> Iterator[str]:
    """Lines and names of the test functions whose names have no subject or need translation."""
    for node in functions_of(source):
        if UNCLEAR.search(node.name):
            yield f"{node.lineno}: {node.name}"


def long_names(source: str) -> Iterator[str]:
    """Lines and names of the test functions whose names are too long."""
    for node in functions_of(source):
        if len(node.name) > LONGEST:
            yield f"{node.lineno}: {node.name} ({len(node.name)})"


def test_test_names_have_at_most_60_characters() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{name}"
        for path in sorted((ROOT / "tests").rglob("*.py"))
        for name in long_names(path.read_text(encoding="utf-8"))
    ]

    assert found == [], "shorten the name, and state the behaviour in full in a docstring"


def test_names_of_tests_have_subjects() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{name}"
        for path in sorted((ROOT / "tests").rglob("*.py"))
        for name in unclear_names(path.read_text(encoding="utf-8"))
    ]

    assert found == [], "say subject, verb and result: test_a_missing_key_is_an_error"


def test_unclear_names_are_found() -> None:
    unclear = ["test_what_is_kept", "test_it_says_so", "test_data_is_that_of_the_base", "test_arrays_count_alike"]
    clear = ["test_a_missing_key_is_an_error", "test_an_item_says_its_name", "test_each_row_uses_its_own_mask"]
    source = "".join(f"def {name}(): ...\n" for name in [*unclear, *clear])

    assert list(unclear_names(source)) == [f"{line}: {name}" for line, name in enumerate(unclear, 1)]


def test_a_module_has_tests_in_a_file_of_its_name() -> None:
    """The modules that each step runs have one, and nine of ten others."""
    modules = {path.stem for path in CORE.rglob("*.py")} - {"__init__", "__main__", "base"}
    files = {path.stem.removeprefix("test_") for path in (ROOT / "tests").rglob("test_*.py")}

    assert modules & files >= HEART
    assert len(modules - files) <= UNTESTED_BY_NAME


def test_long_names_are_found_in_modules_and_classes() -> None:
    fits, long = "test_".ljust(LONGEST, "a"), "test_".ljust(LONGEST + 1, "b")
    source = f"def {fits}(): ...\ndef {long}(): ...\nclass TestIt:\n    async def {long}(self): ...\n"

    assert list(long_names(source)) == [f"2: {long} (61)", f"4: {long} (61)"]
