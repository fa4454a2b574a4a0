"""All public names, methods and properties have docstrings."""

from __future__ import annotations

import importlib
import inspect
from typing import Any

import pytest

from tools.workspace import ROOT, packages

MODULES = [
    *sorted(
        f"steppe.{path.stem}"
        for path in (ROOT / "packages/core/src/steppe").iterdir()
        if not path.name.startswith("_") and (path.suffix == ".py" or (path / "__init__.py").is_file())
    ),
    *sorted(
        path.name
        for package in packages()
        if package.name != "steppe" and not package.apart
        for path in (package.path / "src").iterdir()
        if (path / "__init__.py").is_file()
    ),
]


def is_ours(value: Any) -> bool:
    return str(getattr(value, "__module__", "")).startswith("steppe")


def members(owner: type) -> list[tuple[str, Any]]:
    """The public methods and properties that a class, or a base of it that is ours, defines itself."""
    found = {}
    for cls in reversed(owner.__mro__):
        if is_ours(cls):
            found.update({name: value for name, value in vars(cls).items() if not name.startswith("_")})
    return [
        (name, value)
        for name, value in found.items()
        if (isinstance(value, (property, staticmethod, classmethod)) or inspect.isfunction(value))
        and is_written_here(value)
    ]


def is_written_here(value: Any) -> bool:
    """Whether the source is in this repository: tensorclasses add other methods."""
    function = getattr(value, "__func__", getattr(value, "fget", value))
    code = getattr(inspect.unwrap(function), "__code__", None)
    return code is None or str(ROOT / "packages") in code.co_filename


def has_own_or_inherited_text(owner: type, name: str) -> bool:
    """Whether the method, or one of that name in a base of ours or of torch, has a docstring: an override need not."""
    for cls in owner.__mro__:
        value = vars(cls).get(name)
        if value is not None:
            function = value.__func__ if isinstance(value, (staticmethod, classmethod)) else value
            if (getattr(function, "__doc__", None) or "").strip():
                return True
    return False


@pytest.mark.parametrize("module", MODULES)
def test_public_names_and_their_public_methods_say_what_they_are(module):
    exported = importlib.import_module(module)

    silent = []
    for name in exported.__all__:
        value = getattr(exported, name)
        if not is_ours(value) or not (inspect.isclass(value) or inspect.isfunction(value)):
            continue
        # A dataclass without a docstring is given its signature, and an enum a text of Python's own.
        text = (value.__doc__ or "").strip()
        if not text or text.startswith(f"{name}("):
            silent.append(name)
        if inspect.isclass(value):
            silent += [f"{name}.{each}" for each, _ in members(value) if not has_own_or_inherited_text(value, each)]

    assert silent == []
