"""Examples of packages that are tested apart: the rows of the matrix run them, with the package and its library."""

from __future__ import annotations

import ast
import importlib.metadata
import importlib.util
import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from packaging.requirements import Requirement

from steppe_testing.doubles import installed
from tests.architecture.run_example import run, run_in_child
from tools.workspace import Package, packages

#: Doubles of the libraries of packages (steppe_testing.doubles), and what must be installed for them.
DOUBLES = {
    "steppe-habitat": (["habitat"], "gym"),
    "steppe-isaac": (["isaacgym", "isaaclab"], "gymnasium"),
    "steppe-robohive": (["robohive"], "gymnasium"),
    "steppe-smacv2": (["smacv2"], "numpy"),
}


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


def test_each_name_of_an_apart_package_has_an_example():
    assert sorted(set(DOCSTRINGS) - set(WITH_EXAMPLE)) == []


@pytest.mark.matrix
@pytest.mark.programs
@pytest.mark.parametrize("name", sorted(WITH_EXAMPLE))
def test_the_example_of_a_name_prints_what_it_shows(name, tmp_path, monkeypatch):
    package, text = WITH_EXAMPLE[name]
    monkeypatch.chdir(tmp_path)
    with substitutes(package.name, tmp_path, monkeypatch):
        if lacking := missing_libraries(package, text):
            pytest.skip(f"{', '.join(lacking)} not installed")

        # Ray and Isaac Sim run until the process ends that has started them.
        assert (run_in_child if package.name in ("steppe-ray", "steppe-isaac") else run)(text, name) == ""


@contextmanager
def substitutes(package: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Provide what no machine of the tests has: simulators, games of Unity, data sets of OpenML."""
    with ExitStack() as stack:
        doubles, base = DOUBLES.get(package, ([], package))
        for name in doubles if is_installed(base) else ():
            stack.enter_context(installed(name))
        if package == "steppe-isaac":
            monkeypatch.setenv("STEPPE_LENIENT_DOUBLES", "1")  # several simulations, and torch may be imported before
        elif package == "steppe-openml":
            from tests.envs.openml.conftest import seed_cache

            seed_cache(folder, "mushroom", 1, 101)
            monkeypatch.setenv("SCIKIT_LEARN_DATA", str(folder))
        elif package == "steppe-ray":
            monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
            # Paths of Ray's sockets may have 107 bytes; the temporary folder of a session of nox is too long.
            monkeypatch.setenv("RAY_TMPDIR", stack.enter_context(TemporaryDirectory(prefix="ray", dir="/tmp")))
        elif package == "steppe-unity" and is_installed("mlagents-envs"):
            from tests.envs.unity.games import no_binary

            stack.enter_context(no_binary())
        elif package == "steppe-pretrained":
            import_module("tests.transforms.pretrained.conftest")  # torchvision without its operators
        elif package == "steppe-meltingpot":
            import_module("tests.envs.meltingpot.conftest")  # Melting Pot without TensorFlow
        yield


def missing_libraries(package: Package, text: str) -> list[str]:
    """Return the packages and modules that an example needs and that are not installed."""
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
