"""The core stays small, its modules have names of their own, and its sentences name their subjects."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tools.workspace import ROOT

CORE = ROOT / "packages/core/src/steppe"
FILES = sorted(CORE.rglob("*.py"))
TEXTS = {path.relative_to(CORE): path.read_text(encoding="utf-8") for path in FILES}
TREES = {path: ast.parse(text) for path, text in TEXTS.items()}

#: Lines of Python. The core only shrinks: who adds a feature takes out as many lines, or puts it into a package.
LINES = 34_100
#: Lines of each folder.
FOLDERS = {
    "batched": 3_460,
    "cli": 500,
    "collectors": 5_020,
    "envs": 7_740,
    "registry": 1_900,
    "specs": 5_800,
    "storage": 700,
    "transforms": 5_050,
    "versions": 630,
    "workers": 2_620,
}
#: How often `Any` may occur.
ANYS = 1_150

BATCHES = {"BatchedEnv", "ParallelEnv", "SerialEnv"}
#: Members that a protocol declares with a default, so nothing needs to look for them by name.
DECLARED = {"act", "bind_step", "decoder_of_one", "decoder_of_rows", "has_plain_roots", "in_storage", "row_writer"}

#: Words that readers cannot follow, and subjects that name nothing.
PHRASES = re.compile(
    r"\b[Ww]hat (there is|it is|they are|steps|acts|asks)\b|, and not before\b|\bthat there (is|are)\b"
    r"|has to gain what|in its hand|[Ww]here nobody|without a word|\bnone that\b|\bof what is\b"
    r"|\bthose of (one|those)\b"
)
#: "The device is that of the base": a reader looks back for the noun. "The base's device" names it.
POINTERS = re.compile(r"\b(that|those) of\b", re.IGNORECASE)


def folder(path: Path) -> str:
    return path.parts[0] if len(path.parts) > 1 else ""


def calls(name: str) -> Iterator[tuple[Path, ast.Call]]:
    """The calls of a function by its name, with two arguments or more."""
    for path, tree in TREES.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == name and len(node.args) > 1:
                yield path, node


def test_the_core_keeps_its_size():
    assert sum(text.count("\n") for text in TEXTS.values()) <= LINES


@pytest.mark.parametrize("name", FOLDERS)
def test_a_folder_of_the_core_keeps_its_size(name):
    assert sum(text.count("\n") for path, text in TEXTS.items() if folder(path) == name) <= FOLDERS[name]


def test_each_folder_of_the_core_has_a_size():
    assert {folder(path) for path in TEXTS} - {""} == set(FOLDERS)


def test_any_stays_rare_in_the_core():
    assert sum(len(re.findall(r"\bAny\b", text)) for text in TEXTS.values()) <= ANYS


def test_no_two_modules_of_the_core_share_a_name():
    names = Counter(path.name for path in TEXTS if path.name not in ("__init__.py", "base.py"))

    assert [name for name, count in names.items() if count > 1] == []


def test_only_batched_tests_for_classes_of_batches():
    found = [
        f"{path}:{call.lineno}"
        for path, call in calls("isinstance")
        if folder(path) != "batched"
        and {node.id for node in ast.walk(call.args[1]) if isinstance(node, ast.Name)} & BATCHES
    ]

    assert found == []


def test_declared_members_are_not_looked_up_by_name():
    found = [
        f"{path}:{call.lineno}"
        for name in ("getattr", "hasattr")
        for path, call in calls(name)
        if getattr(call.args[1], "value", None) in DECLARED
    ]

    assert found == []


def test_the_architecture_names_every_module_of_the_core():
    page = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    modules = [path for path in TEXTS if path.name != "__init__.py"]

    assert [str(path) for path in modules if not re.search(rf"\b{re.escape(path.stem)}\b", page)] == []


def test_sentences_of_the_core_name_their_subjects():
    found = [f"{path}: {match.group()}" for path, text in TEXTS.items() for match in PHRASES.finditer(text)]

    assert found == []


def test_pointers_to_an_earlier_noun_stay_rare():
    assert sum(len(POINTERS.findall(text)) for text in TEXTS.values()) <= 20


def test_unclear_phrases_are_recognised():
    assert PHRASES.search("what there is from the start on")
    assert POINTERS.search("Device of the data: that of the base")
    assert not PHRASES.search("Device of the data: the base's")
    assert not POINTERS.search("the base's")
