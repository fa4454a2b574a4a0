"""Examples of packages that are tested apart: the rows of the matrix run them, with the package and its library."""

from __future__ import annotations

import ast
import importlib.metadata
import importlib.util
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement

from tests.architecture.run_example import run, run_in_child
from tools.workspace import Package, packages, read_toml

#: Names without an example, by module: their library needs a game, a data set, weights or a GPU. It may only shrink.
MISSING: dict[str, list[str]] = read_toml(Path(__file__).parent / "apart_without_example.toml")


def public_docstrings(package: Package) -> Iterator[tuple[str, str]]:
    """Yield ``module:name`` and the docstring of each public name. Nothing is imported: the library may be missing."""
    for init in (package.path / "src").glob("*/__init__.py"):
        exported = set(exported_names(ast.parse(init.read_text(encoding="utf-8"))))
        for file in sorted(init.parent.rglob("*.py")):
            for node in ast.parse(file.read_text(encoding="utf-8")).body:
                if isinstance(node, (ast.ClassDef, ast.FunctionDef)) and node.name in exported:
                    yield f"{init.parent.name}:{node.name}", ast.get_docstring(node) or ""


def exported_names(module: ast.Module) -> Iterator[str]:
    """Yield the names of ``__all__``, a list or what ``lazy_exports`` returns."""
    for node in ast.walk(module):
        value: Any = None
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and node.targets[0].id == "__all__":
            value = {"": ast.literal_eval(node.value)}
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "lazy_exports":
            value = ast.literal_eval(node.args[1])
        for names in (value or {}).values():
            yield from names


# The implementation of an overloaded function comes last, and has the docstring.
DOCSTRINGS = {
    name: (package, text) for package in packages() if package.apart for name, text in public_docstrings(package)
}
WITH_EXAMPLE = {
    name: (package, text)
    for name, (package, text) in DOCSTRINGS.items()
    if any(">>>" in line and "+SKIP" not in line for line in text.splitlines())
}


def test_no_further_name_of_an_apart_package_lacks_an_example():
    listed = [f"{module}:{name}" for module, names in MISSING.items() for name in names]

    assert sorted(set(DOCSTRINGS) - set(WITH_EXAMPLE)) == sorted(listed)


@pytest.mark.matrix
@pytest.mark.programs
@pytest.mark.parametrize("name", sorted(WITH_EXAMPLE))
def test_the_example_of_a_name_prints_what_it_shows(name, tmp_path, monkeypatch):
    package, text = WITH_EXAMPLE[name]
    if lacking := missing_libraries(package, text):
        pytest.skip(f"{', '.join(lacking)} not installed")
    monkeypatch.chdir(tmp_path)

    # Ray leaves its processes running until the one that has started it ends.
    assert (run_in_child if package.name == "steppe-ray" else run)(text, name) == ""


def missing_libraries(package: Package, text: str) -> list[str]:
    """Return what is not installed of a package, its requirements, and the modules that its example imports."""
    needed = [package.name, *(Requirement(each).name for each in package.pyproject["project"]["dependencies"])]
    missing = [name for name in needed if not is_installed(name)]
    alternatives = [[Requirement(each).name for each in package.extras[extra]] for extra in package.alternatives]
    if alternatives and not any(all(map(is_installed, names)) for names in alternatives):
        missing += alternatives[0]
    modules = re.findall(r"^>>> (?:from|import) (\w+)", text, re.MULTILINE)
    missing += [name for name in modules if importlib.util.find_spec(name) is None]
    return list(dict.fromkeys(missing))


def is_installed(distribution: str) -> bool:
    try:
        importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True
