"""Refuse arguments that a scenario does not take.

VMAS itself only warns about unknown arguments.
"""

from __future__ import annotations

import ast
import difflib
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path
from types import FunctionType
from typing import Any

__all__ = ["make_with_known_arguments"]

#: The start of VMAS' warning about arguments that the scenario did not consume. In future versions it is an error.
_NOT_CONSUMED = "Scenario kwargs:"


def make_with_known_arguments(
    make: Callable[[], Any], scenario: object, requested: Iterable[str], known: Iterable[str]
) -> Any:
    """Make an environment after checking the arguments of its scenario.

    Raises an error if the scenario does not accept one of the arguments.

    An argument is refused if VMAS reports that the scenario did not consume it, and the source of the scenario does not
    contain its name. A scenario whose source contains the name may read the argument without consuming it.

    Args:
        make: function that makes the environment.
        scenario: an instance of ``BaseScenario``.
        requested: names of the arguments for the scenario.
        known: names of other arguments, which the error may suggest.

    Raises:
        TypeError: an argument was refused. The text lists the arguments of the scenario.
    """
    source = _ScenarioSource(type(scenario))
    unknown = sorted(set(requested) - source.words)
    if not unknown or not source.readable:
        return make()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            env, failure = make(), None
        except ValueError as error:
            if _NOT_CONSUMED not in str(error):
                raise
            env, failure = None, str(error)
    texts = [str(warning.message) for warning in caught if _NOT_CONSUMED in str(warning.message)]
    texts += [failure] if failure else []
    refused = [name for name in unknown if any(repr(name) in text for text in texts)]
    if refused:
        name, names = refused[0], sorted(source.arguments)
        matches = difflib.get_close_matches(name, [*names, *known], 1)
        hint = f": did you mean {matches[0]!r}? It" if matches else ". It"
        accepted = f"takes {', '.join(names)}." if names else "takes none."
        label = type(scenario).__name__ if type(scenario).__name__ != "Scenario" else Path(source.path).stem
        raise TypeError(f"The scenario {label!r} has no argument {name!r}{hint} {accepted}")
    for warning in caught:
        warnings.warn_explicit(warning.message, warning.category, warning.filename, warning.lineno)
    return env


class _ScenarioSource:
    """Name in the source files of a scenario class and its base classes.

    Attributes:
        readable: whether all files could be read.
        words: all string constants and parameter names.
        arguments: names that are read from ``kwargs`` with ``pop`` or ``get``.
    """

    def __init__(self, cls: type) -> None:
        self.readable, self.path = True, ""
        self.words: set[str] = set()
        self.arguments: set[str] = set()
        paths = [path for base in cls.__mro__ for path in _paths(base)]
        for path in dict.fromkeys(paths):
            self.path = self.path or path
            try:
                self._read(ast.parse(Path(path).read_text(encoding="utf-8")))
            except (OSError, SyntaxError, UnicodeDecodeError):
                self.readable = False

    def _read(self, tree: ast.AST) -> None:
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                self.words.add(node.value)
            elif isinstance(node, ast.arg):
                self.words.add(node.arg)
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args:
                owner, first = node.func.value, node.args[0]
                reads_kwargs = node.func.attr in ("pop", "get") and isinstance(owner, ast.Name) and "kwargs" in owner.id
                if reads_kwargs and isinstance(first, ast.Constant) and isinstance(first.value, str):
                    self.arguments.add(first.value)


def _paths(cls: type) -> list[str]:
    """Return the files of a class's methods.

    VMAS loads scenarios as modules that cannot be imported by name.
    """
    if cls is object or cls.__module__ == "vmas.simulator.scenario":
        return []
    return [value.__code__.co_filename for value in vars(cls).values() if isinstance(value, FunctionType)]
