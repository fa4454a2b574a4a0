"""Which arguments a scenario takes: VMAS hands over all that it is given, and only warns about what is left."""

from __future__ import annotations

import ast
import difflib
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path
from types import FunctionType
from typing import Any

__all__ = ["made_of_known_arguments"]

#: How VMAS' warning about arguments that a scenario has not taken begins; it says that it will be an error.
_LEFT = "Scenario kwargs:"


def made_of_known_arguments(make: Callable[[], Any], scenario: Any, given: Iterable[str], known: Iterable[str]) -> Any:
    """Make an environment, and refuse arguments that its scenario does not take.

    An argument is refused where VMAS says that the scenario has left it, and the scenario's own source has no such
    name: one that asks for an argument and leaves it where it is may still use it.

    Args:
        make: makes the environment.
        scenario: an instance of ``BaseScenario``.
        given: names of the arguments that are for the scenario.
        known: names that could have been meant beside those of the scenario.

    Raises:
        TypeError: with the arguments that the scenario takes.
    """
    source = _Source(type(scenario))
    unknown = sorted(set(given) - source.words)
    if not unknown or not source.found:
        return make()
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        try:
            env, failure = make(), None
        except ValueError as error:
            if _LEFT not in str(error):
                raise
            env, failure = None, str(error)
    said = [str(warning.message) for warning in heard if _LEFT in str(warning.message)]
    said += [failure] if failure else []
    left = [name for name in unknown if any(repr(name) in text for text in said)]
    if left:
        name, names = left[0], sorted(source.arguments)
        near = difflib.get_close_matches(name, [*names, *known], 1)
        hint = f": did you mean {near[0]!r}? It" if near else ". It"
        takes = f"takes {', '.join(names)}." if names else "takes none."
        label = type(scenario).__name__ if type(scenario).__name__ != "Scenario" else Path(source.path).stem
        raise TypeError(f"The scenario {label!r} has no argument {name!r}{hint} {takes}")
    for warning in heard:
        warnings.warn_explicit(warning.message, warning.category, warning.filename, warning.lineno)
    return env


class _Source:
    """What the files say in which a scenario and the classes above it are written.

    Attributes:
        found: whether all of them could be read.
        words: all texts and names of parameters.
        arguments: those that are taken out of ``kwargs``.
    """

    def __init__(self, cls: type) -> None:
        self.found, self.path = True, ""
        self.words: set[str] = set()
        self.arguments: set[str] = set()
        paths = [path for above in cls.__mro__ for path in _paths(above)]
        for path in dict.fromkeys(paths):
            self.path = self.path or path
            try:
                self._read(ast.parse(Path(path).read_text(encoding="utf-8")))
            except (OSError, SyntaxError, UnicodeDecodeError):
                self.found = False

    def _read(self, tree: ast.AST) -> None:
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                self.words.add(node.value)
            elif isinstance(node, ast.arg):
                self.words.add(node.arg)
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args:
                owner, first = node.func.value, node.args[0]
                asked = node.func.attr in ("pop", "get") and isinstance(owner, ast.Name) and "kwargs" in owner.id
                if asked and isinstance(first, ast.Constant) and isinstance(first.value, str):
                    self.arguments.add(first.value)


def _paths(cls: type) -> list[str]:
    """Files of the methods that a class defines; VMAS loads scenarios as modules that nobody can import."""
    if cls is object or cls.__module__ == "vmas.simulator.scenario":
        return []
    return [value.__code__.co_filename for value in vars(cls).values() if isinstance(value, FunctionType)]
