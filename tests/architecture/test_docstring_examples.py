"""Examples of public names, in docstrings and in docs/api-examples, run and print the output shown."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Iterator
from typing import Any

import pytest

from steppe.registry import Registry, use
from tests.architecture.run_example import run, run_in_child
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

#: Examples of libraries that leave something behind until the process ends: wandb a server, torch's RPC shared memory.
IN_A_CHILD = {"steppe_distributed:RPCDataCollector", "steppe_record:WandbLogger"}


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
    text = BESIDE.get(name, NAMES[name].__doc__)

    differences = (run_in_child if name in IN_A_CHILD else run)(text, name)

    assert differences == ""
