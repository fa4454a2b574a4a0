"""Imports go one way, and only through public names."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from tools.imports import Import, imports_of
from tools.workspace import ROOT, Package, packages

CHAIN = ("errors", "types", "specs", "storage", "workers", "envs", "transforms", "batched", "collectors")

# What stands beside the chain, and the links of the chain that may ask it.
BESIDE = {
    "registry": ("workers", "batched", "collectors", "cli", "imports"),
    "versions": ("registry", "workers", "envs", "transforms", "batched", "collectors", "cli"),
    "cli": ("__main__",),
    "loggers": ("cli",),
    "imports": ("specs", "workers", "envs", "transforms", "batched", "collectors", "cli", "loggers"),
    "compat": ("envs",),
    "systems": ("storage", "workers", "batched", "cli"),
}

# The only imports against the chain: inside a function, at the moment of the call.
LATE = {
    ("steppe.envs", "EnvBase.append_transform", "transforms"): "env.append_transform(t) gives a TransformedEnv",
    ("steppe.envs", "EnvBase._prepared_for", "transforms"): "an environment made with policy= has what that needs",
    ("steppe.envs", "EnvBase._resetting_itself", "transforms"): "auto_reset=True gives an AutoResetEnv",
    ("steppe.envs", "EnvBase.make_parallel", "batched"): "env.make_parallel(...) gives a ParallelEnv",
    ("steppe.envs", "EnvBase.register_gym", "registry"): "env.register_gym(...) finds the plugin that knows gym",
    ("steppe.transforms", "__dir__", "registry"): "the transforms of other packages are found by name",
}

CORE = imports_of(ROOT / "packages/core/src")
PLUGINS = [package for package in packages() if package.name != "steppe"]


def subpackage(module: str) -> str:
    """The subpackage of steppe that a module is in; "" for steppe itself."""
    return (module.split(".") + [""])[1]


def targets(found: Import) -> set[str]:
    """The subpackages that an import reaches; ``from steppe import specs`` reaches one by name."""
    if found.imported != "steppe":
        return {subpackage(found.imported)}
    return {name for name in found.names if name in CHAIN or name in BESIDE}


def allowed(importer: str, target: str) -> bool:
    if target in (importer, "errors", "arguments"):
        return True
    if importer in CHAIN and target in CHAIN:
        return CHAIN.index(target) < CHAIN.index(importer)
    return importer in BESIDE.get(target, ())


def steppe_imports() -> list[tuple[Import, str]]:
    return [
        (found, target)
        for found in CORE
        if found.imported.split(".")[0] == "steppe" and subpackage(found.importer)
        for target in targets(found)
    ]


def is_late(found: Import, target: str) -> bool:
    return any(
        found.importer.startswith(module) and found.inside.endswith(function) and target == reached
        for module, function, reached in LATE
    )


def test_the_core_imports_one_way():
    against = [
        str(found)
        for found, target in steppe_imports()
        if not allowed(subpackage(found.importer), target)
        # The command line is free of torch until a command must make an environment.
        and not (found.inside and (is_late(found, target) or subpackage(found.importer) == "cli"))
    ]

    assert against == []


def test_core_subpackages_import_each_others_public_names():
    private = [
        str(found)
        for found, target in steppe_imports()
        if target != subpackage(found.importer)
        and found.imported.count(".") > 1
        # To list plugins in milliseconds, a command takes one function without the rest of the registry.
        and (subpackage(found.importer), target) != ("cli", "registry")
    ]

    assert private == []


@pytest.mark.parametrize("name", ["errors", "arguments", "registry", "versions", "loggers"])
def test_listing_plugins_imports_no_torch(name):
    heavy = [
        str(found)
        for found in CORE
        if subpackage(found.importer) == name and found.imported.split(".")[0] in ("torch", "tensordict", "numpy")
    ]

    assert heavy == []


def test_only_discovery_reads_package_metadata_of_plugins():
    readers = {found.importer for found in CORE if found.imported.split(".")[0] == "importlib_metadata"}

    assert readers == {"steppe.registry.discovery"}


def test_the_base_class_knows_none_of_its_children():
    envs = [found for found in CORE if subpackage(found.importer) == "envs"]

    assert [str(found) for found in envs if re.match(r"steppe_|gym", found.imported)] == []


@pytest.mark.parametrize("package", PLUGINS, ids=lambda package: package.name)
def test_a_plugin_imports_public_names_of_steppe_only(package: Package):
    private = []
    for found in imports_of(package.path / "src"):
        parts = found.imported.split(".")
        if parts[0] == "steppe" and (len(parts) > 2 or any(part.startswith("_") for part in (*parts, *found.names))):
            private.append(str(found))

    assert private == []


@pytest.mark.parametrize("package", PLUGINS, ids=lambda package: package.name)
def test_a_plugin_imports_another_only_as_a_declared_dependency(package: Package):
    declared = " ".join(package.pyproject["project"]["dependencies"])
    own = {path.name for path in (package.path / "src").iterdir()}
    others = {
        found.imported.split(".")[0]
        for found in imports_of(package.path / "src")
        if found.imported.startswith("steppe_") and found.imported.split(".")[0] not in own
    }

    assert {other for other in others if other.replace("_", "-") not in declared} == set()


def test_plugin_modules_import_neither_library_nor_torch():
    """Entry points of environments do not import torch or their library at the top."""
    heavy = []
    for package in PLUGINS:
        for target in package.entry_points("steppe.envs").values():
            path = package.path / "src" / Path(*target.split(":")[0].split(".")).with_suffix(".py")
            module = ast.parse(path.read_text(encoding="utf-8"))
            heavy += [
                f"{package.name}: {ast.unparse(node)}"
                for node in module.body
                if isinstance(node, ast.Import | ast.ImportFrom)
                and not ast.unparse(node).startswith(("from __future__", "from steppe", "import steppe"))
                and re.search(r"\b(torch|tensordict|gym|gymnasium|numpy)\b", ast.unparse(node))
            ]

    assert heavy == []


def defined_names(tree: ast.AST) -> set[str]:
    """Underscored names that a module defines: functions, classes, attributes of self, and entries of its state."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            found.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            found.add(node.attr)
        elif (
            isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store) and isinstance(node.slice, ast.Constant)
        ):
            found.add(str(node.slice.value))
    return {name for name in found if name.startswith("_") and not name.startswith("__")}


def crossing_names(sources: dict[str, list[str]]) -> list[str]:
    """Underscored names that are read in a room that does not define them, where another one does.

    Args:
        sources: the code of each room: a folder of the core, or a package.
    """
    trees = [(room, ast.parse(code)) for room, codes in sources.items() for code in codes]
    owners: dict[str, set[str]] = {}
    for room, tree in trees:
        for name in defined_names(tree):
            owners.setdefault(name, set()).add(room)
    return [
        f"{room}: {ast.unparse(node)} of {sorted(owners[node.attr])}"
        for room, tree in trees
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and room not in owners.get(node.attr, {room})
        # What torch and tensordict call so too, and the library's object, which wrappers have under TorchRL's name.
        and node.attr not in ("_version", "_batch_size", "_env")
    ]


def test_no_underscored_name_leaves_its_folder_or_package():
    """Underscored names stay in their folder of the core, or in their package."""
    core = ROOT / "packages/core/src/steppe"
    sources: dict[str, list[str]] = {}
    for package in packages():
        for path in (package.path / "src").rglob("*.py"):
            if "doubles" in path.parts:  # they have the underscored names of their libraries
                continue
            room = path.relative_to(core).parts[0] if package.name == "steppe" else package.name
            sources.setdefault(room, []).append(path.read_text(encoding="utf-8"))

    assert {"envs", "batched", "steppe-gym", "steppe-jax", "steppe-vision", "steppe-testing"} <= set(sources)
    assert crossing_names(sources) == []


def test_names_that_cross_are_found():
    sources = {
        "envs": ["class Base:\n    def _own(self): ...\n    def __init__(self): self._kept = 1"],
        "steppe-jax": ["def use(env): return env._own()", "class Env:\n    def __init__(self): self._state = 1"],
        "steppe-brax": ["def read(env): return env._state, env._kept, env._not_ours"],
    }

    assert crossing_names(sources) == [
        "steppe-jax: env._own of ['envs']",
        "steppe-brax: env._state of ['steppe-jax']",
        "steppe-brax: env._kept of ['envs']",
    ]
