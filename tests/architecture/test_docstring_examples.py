"""Examples of public names, in docstrings and in docs/api-examples, run and print the output shown."""

from __future__ import annotations

import doctest
import importlib
import inspect
from collections.abc import Iterator
from typing import Any

import pytest

from steppe.registry import Registry, use
from tests.architecture.test_docstrings import MODULES, is_ours
from tools.site import api


def public_names() -> dict[str, Any]:
    """The public classes and functions of all packages, as ``module:name``; each in the first module that lists it."""
    found: dict[int, tuple[str, Any]] = {}
    for module in MODULES:
        exported = importlib.import_module(module)
        for name in exported.__all__:
            value = getattr(exported, name)
            if is_ours(value) and (inspect.isclass(value) or inspect.isroutine(value)):
                found.setdefault(id(value), (f"{module}:{name}", value))
    return dict(found.values())


NAMES = public_names()
BESIDE = api.examples()


def test_each_public_name_has_an_example():
    assert [name for name, value in NAMES.items() if name not in BESIDE and ">>>" not in (value.__doc__ or "")] == []


def test_each_example_beside_the_code_is_of_a_public_name():
    assert sorted(set(BESIDE) - set(NAMES)) == []


@pytest.fixture(scope="module", autouse=True)
def _own_registry() -> Iterator[None]:
    """Keep the environments that examples register from the tests of other files."""
    with use(Registry()):
        yield


@pytest.mark.programs
@pytest.mark.parametrize("name", sorted(NAMES))
def test_the_example_of_a_public_name_prints_what_it_shows(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    value = NAMES[name]
    names = {"__name__": "__main__"}  # as a reader who copies the example into an interpreter
    flags = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS
    example = doctest.DocTestParser().get_doctest(BESIDE.get(name, value.__doc__), names, name, None, 0)
    printed: list[str] = []

    result = doctest.DocTestRunner(optionflags=flags).run(example, out=printed.append)

    assert result.failed == 0, "".join(printed)
