"""Imports that happen late: names of a package at first use, callbacks, and tensordict without torch's compiler."""

from __future__ import annotations

import gc
import importlib
import importlib.util
import sys
from functools import partial
from importlib.abc import MetaPathFinder
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType

    from .registry import Kind

    _Function = Callable[..., Any]
    _Mark = Callable[[_Function], _Function]

__all__ = ["after_import", "import_tensordict", "lazy_exports"]

COMPILER = "torch._dynamo"
#: Decorators of torch.compiler that mark a function for the compiler and return it unchanged.
MARKS = ("allow_in_graph", "assume_constant_result")


def lazy_exports(
    package: str, modules: Mapping[str, Sequence[str]] | None = None, *, kind: Kind | None = None
) -> tuple[Callable[[str], object], Callable[[], list[str]], list[str]]:
    """Return ``__getattr__``, ``__dir__`` and ``__all__`` of a package that imports each name at its first use.

    Args:
        package: ``__name__`` of the package.
        modules: the names of each of its modules.
        kind: the kind of classes of other installed packages that can be imported from this one too.
    """
    module_of = {name: module for module, names in (modules or {}).items() for name in names}

    def module_getattr(name: str) -> object:
        if name in module_of:
            value = getattr(importlib.import_module(f"{package}.{module_of[name]}"), name)
            setattr(sys.modules[package], name, value)
            return value
        if kind is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        from .registry import find_class

        return find_class(kind, name, core=sys.modules[package].__all__, module=package)

    def module_dir() -> list[str]:
        from .registry import list_classes

        return sorted({*sys.modules[package].__all__, *(list_classes(kind) if kind else ())})

    return module_getattr, module_dir, list(module_of)


def after_import(name: str, then: Callable[[], object]) -> None:
    """Call ``then`` after the module ``name`` was imported; at once if it is imported already."""
    if name in sys.modules:
        then()
    else:
        sys.meta_path.insert(0, _AfterImport(name, then))


def import_tensordict() -> None:
    """Import tensordict without torch's compiler, and with the garbage collector off.

    tensordict marks a few functions for ``torch.compile`` on import, and torch imports its whole compiler for that,
    which takes half of the import time. The functions are marked later, if something else imports the compiler. The
    garbage collector would take a sixth of the remaining time, on modules that are never freed.
    """
    collects = gc.isenabled()
    gc.disable()
    try:
        _import_tensordict()
    finally:
        if collects:
            gc.enable()


def _import_tensordict() -> None:
    import torch.compiler as compiler

    if COMPILER in sys.modules:
        importlib.import_module("tensordict")
        return
    noted: list[tuple[_Mark, _Function]] = []
    marks = {name: getattr(compiler, name) for name in MARKS if hasattr(compiler, name)}
    for name, mark in marks.items():
        setattr(compiler, name, partial(_note, noted, mark))
    try:
        importlib.import_module("tensordict")
    finally:
        for name, mark in marks.items():
            setattr(compiler, name, mark)
    if noted:
        after_import(COMPILER, partial(_mark_all, noted))


def _note(noted: list[tuple[_Mark, _Function]], mark: _Mark, function: _Function) -> _Function:
    noted.append((mark, function))
    return function


def _mark_all(noted: list[tuple[_Mark, _Function]]) -> None:
    for mark, function in noted:
        mark(function)


class _AfterImport(MetaPathFinder):
    """Call ``then`` once, after the module ``name`` was imported."""

    def __init__(self, name: str, then: Callable[[], object]) -> None:
        self.name = name
        self.then = then

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != self.name:
            return None
        sys.meta_path.remove(self)  # so that find_spec calls the other finders
        try:
            spec = importlib.util.find_spec(fullname)
        finally:
            sys.meta_path.insert(0, self)
        if spec is None or spec.loader is None:
            return spec
        run = spec.loader.exec_module

        def exec_module(module: ModuleType) -> None:
            run(module)
            sys.meta_path.remove(self)
            self.then()

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec
