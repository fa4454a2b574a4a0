"""What is done when a module is imported: calls that wait for one, and tensordict without torch's compiler."""

from __future__ import annotations

import gc
import importlib
import importlib.util
import sys
from contextlib import contextmanager
from functools import partial
from importlib.abc import MetaPathFinder
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType

__all__ = ["after_import", "import_tensordict"]

COMPILER = "torch._dynamo"
#: Functions of torch.compiler that note something of the function they are given, and return it as it is.
MARKS = ("allow_in_graph", "assume_constant_result")


def after_import(name: str, then: Callable[[], Any]) -> None:
    """Call ``then`` when the module ``name`` has been imported; at once where it is there already."""
    if name in sys.modules:
        then()
    else:
        sys.meta_path.insert(0, _AfterImport(name, then))


def import_tensordict() -> None:
    """Import tensordict; what it marks for the compiler is marked when something loads the compiler.

    When tensordict is imported it marks a few functions for ``torch.compile``, and torch loads its whole compiler to
    take the marks: half of the time that an interpreter needs which may never compile anything. Of the rest, a sixth
    would be spent by the garbage collector, on modules that stay.
    """
    with _without_collector():
        _import_tensordict()


def _import_tensordict() -> None:
    import torch.compiler as compiler

    if COMPILER in sys.modules:
        importlib.import_module("tensordict")
        return
    noted: list[tuple[Any, Any]] = []
    marks = {name: getattr(compiler, name) for name in MARKS if hasattr(compiler, name)}
    for name, mark in marks.items():
        setattr(compiler, name, partial(_note, noted, mark))
    try:
        importlib.import_module("tensordict")
    finally:
        for name, mark in marks.items():
            setattr(compiler, name, mark)
    if noted:
        after_import(COMPILER, partial(_pass_on, noted))


@contextmanager
def _without_collector() -> Iterator[None]:
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _note(noted: list[tuple[Any, Any]], mark: Any, function: Any) -> Any:
    noted.append((mark, function))
    return function


def _pass_on(noted: list[tuple[Any, Any]]) -> None:
    for mark, function in noted:
        mark(function)


class _AfterImport(MetaPathFinder):
    """Calls ``then`` when the module ``name`` has been imported, once."""

    def __init__(self, name: str, then: Callable[[], Any]) -> None:
        self.name = name
        self.then = then

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != self.name:
            return None
        sys.meta_path.remove(self)  # for the others to find it
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
