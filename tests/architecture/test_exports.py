"""Public names: subpackages list their names, and steppe imports them lazily."""

from __future__ import annotations

import ast
import importlib
import inspect
from pathlib import Path
from types import ModuleType

import pytest

import steppe
from steppe.imports import lazy_exports
from tools.workspace import ROOT, packages

SUBPACKAGES = sorted(
    f"steppe.{path.stem}"
    for path in (ROOT / "packages/core/src/steppe").iterdir()
    if not path.name.startswith("_") and (path.suffix == ".py" or (path / "__init__.py").is_file())
)
OTHERS = [
    path.name
    for package in packages()
    if package.name != "steppe" and not package.apart
    for path in (package.path / "src").iterdir()
    if (path / "__init__.py").is_file()
]


def public(module: ModuleType) -> set[str]:
    """The classes and functions of steppe that a module shows without an underscore."""
    return {
        name
        for name, value in vars(module).items()
        if not name.startswith("_")
        and str(getattr(value, "__module__", "")).startswith("steppe")
        and (value is not lazy_exports or module.__name__ == lazy_exports.__module__)  # packages are written with it
    }


@pytest.mark.parametrize("name", [*SUBPACKAGES, *OTHERS])
def test_public_names_are_listed_in_all(name):
    module = importlib.import_module(name)
    said = list(module.__all__)

    assert len(said) == len(set(said)), "a name stands twice in __all__"
    assert [each for each in said if not hasattr(module, each)] == []
    assert public(module) - set(said) == set()


@pytest.mark.parametrize("name", [*SUBPACKAGES, *OTHERS])
def test_public_names_are_documented(name):
    module = importlib.import_module(name)

    undocumented = [
        each
        for each in module.__all__
        if (inspect.isclass(value := getattr(module, each)) or inspect.isfunction(value)) and not inspect.getdoc(value)
    ]

    assert undocumented == []


def test_lazy_names_are_public_in_their_module():
    table = steppe._EXPORTS

    assert [
        f"{subpackage}.{name}"
        for name, subpackage in table.items()
        if name not in importlib.import_module(f"steppe.{subpackage}").__all__
    ] == []
    assert all(getattr(steppe, name) is not None for name in table)
    assert set(table) < set(steppe.__all__) <= {*table, "__version__", *dir(steppe)}


def test_a_star_import_gives_what_single_imports_give():
    names: dict[str, object] = {}
    exec("from steppe import *", names)

    assert set(steppe.__all__) <= set(names)
    assert names["StepCounter"] is steppe.StepCounter
    assert names["RewardScaling"] is steppe.RewardScaling  # of a package
    assert "Any" not in names


def test_dir_lists_names_for_users_and_no_internals():
    assert {"StepCounter", "RewardScaling", "Compose", "Transform"} <= set(dir(steppe.transforms))
    assert {"Any", "EnvSpecs", "RowHooks", "annotations", "compose"} & set(dir(steppe.transforms)) == set()
    assert {"StepCounter", "RewardScaling", "make_env", "transforms"} <= set(dir(steppe))
    assert {"TYPE_CHECKING", "annotations", "errors_"} & set(dir(steppe)) == set()


def seen_by_type_checkers(init: Path = ROOT / "packages/core/src/steppe/__init__.py") -> dict[str, str]:
    """The names of a package, and the modules that type checkers see them imported from."""
    source = ast.parse(init.read_text(encoding="utf-8"))
    block = next(node for node in source.body if isinstance(node, ast.If))
    return {
        alias.asname: node.module
        for node in block.body
        if isinstance(node, ast.ImportFrom) and node.level
        for alias in node.names
    }


def test_type_checkers_see_the_names_that_are_found_at_run_time():
    seen = {name: module.partition(".")[0] for name, module in seen_by_type_checkers().items()}
    assert seen == steppe._EXPORTS


LAZY = [
    init
    for package in packages()
    for init in sorted((package.path / "src").glob("*/__init__.py"))
    if "= lazy_exports(" in init.read_text(encoding="utf-8")
]


@pytest.mark.parametrize("init", LAZY, ids=lambda init: init.parent.name)
def test_type_checkers_see_the_lazy_names_of_a_package(init: Path):
    tree = ast.parse(init.read_text(encoding="utf-8"))
    (table,) = [node for node in ast.walk(tree) if isinstance(node, ast.Dict)]
    at_run_time = {name: module for module, names in ast.literal_eval(table).items() for name in names}

    assert seen_by_type_checkers(init) == at_run_time


def test_type_checkers_read_no_function_as_a_module():
    """Each import that type checkers read names a function or class, not a module."""
    # `from .envs import step_mdp` is the module envs/step_mdp.py to mypy, which reads steppe before steppe.envs.
    core = ROOT / "packages/core/src/steppe"
    assert [
        f"from .{module} import {name}"
        for name, module in seen_by_type_checkers().items()
        if (core / module / f"{name}.py").is_file() or (core / module / name).is_dir()
    ] == []


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'nothing_of_that_name'"):
        steppe.nothing_of_that_name  # noqa: B018
