"""Only two modules use names of tensordict that are not stable and public."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest
import tensordict
import torch
from packaging.requirements import Requirement
from packaging.version import Version
from tensordict.nn import TensorDictModule

import steppe.compat
from tools.imports import imports_of
from tools.workspace import ROOT, packages

CORE = ROOT / "packages/core/src/steppe"
SOURCES = [package.path / "src" for package in packages()]
FILES = sorted(path for source in SOURCES for path in source.rglob("*.py") if "templates" not in path.parts)
# Specs have attributes of their own that happen to be called the same.
OF_SPECS = {"_device", "_dtype"}
READERS = ("getattr", "setattr", "hasattr", "attrgetter", "delattr")


def private_names() -> set[str]:
    """The underscored names of tensordict's classes, without those of torch's modules."""
    plain = tensordict.TensorDict({}, [])
    samples = (
        plain,
        tensordict.lazy_stack([plain, plain]),
        tensordict.NonTensorData("text"),
        tensordict.NonTensorStack("one", "two"),
        TensorDictModule(torch.nn.Identity(), in_keys=["a"], out_keys=["b"]),
    )
    names = {name for sample in samples for name in (*dir(sample), *vars(sample))}
    return {name for name in names - set(dir(torch.nn.Module())) if name[0] == "_" and name[:2] != "__"}


def uses_of(names: set[str], path: Path) -> Iterator[str]:
    """Places in a file that read one of the names from another object than ``self``."""
    own = OF_SPECS if "specs" in path.relative_to(ROOT).parts else set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Attribute):
            name, of = node.attr, ast.unparse(node.value)
        elif isinstance(node, ast.Call) and node.args and ast.unparse(node.func).split(".")[-1] in READERS:
            name, of = getattr(node.args[-1], "value", None), ast.unparse(node.args[0])
        else:
            continue
        if name in names - own and of not in ("self", "cls", "super()"):
            yield f"{path.relative_to(ROOT)}:{node.lineno}: {ast.unparse(node)}"


def test_private_attributes_of_tensordict_are_used_in_one_module():
    names = private_names()
    found = {path: list(uses_of(names, path)) for path in FILES}
    there = found.pop(CORE / "storage/build.py")

    assert [use for uses in found.values() for use in uses] == []
    assert len(there) > 5


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: path.parent.name)
def test_one_module_imports_names_that_moved_in_tensordict(source: Path):
    moved = set(steppe.compat.__all__)
    elsewhere = [
        str(found)
        for found in imports_of(source)
        if found.importer != "steppe.compat"
        and found.imported.split(".")[0] == "tensordict"
        and (moved & set(found.names) or found.imported not in ("tensordict", "tensordict.nn"))
    ]

    assert elsewhere == []


def test_installed_tensordict_is_in_the_range_of_the_core():
    declared = [Requirement(each) for each in packages()[0].pyproject["project"]["dependencies"]]
    specifier = next(each.specifier for each in declared if each.name == "tensordict")

    assert Version(tensordict.__version__) in specifier
