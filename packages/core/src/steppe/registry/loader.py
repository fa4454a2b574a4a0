"""Imports the target of an entry point; errors say exactly what is wrong."""

from __future__ import annotations

import traceback
from importlib import import_module
from pathlib import PurePath
from types import ModuleType
from typing import Any

from ..errors import PluginBroken
from .records import PluginRecord

#: What to do if an entry point names nothing.
_FIX = "correct the name in [project.entry-points] of its pyproject.toml, and install the package again."


def load(record: PluginRecord) -> Any:
    """Import the module that a plugin's entry point names, and the attribute if it names one.

    Raises:
        PluginBroken: the module does not exist, fails to import, or lacks the attribute.
    """
    module_name, _, attributes = record.target.partition(":")
    target: object = _import(record, module_name)
    for attribute in attributes.split(".") if attributes else ():
        if not hasattr(target, attribute):
            raise PluginBroken(f"{record.label} names {attributes!r} of {module_name!r}, which has none: {_FIX}")
        target = getattr(target, attribute)
    return target


def _import(record: PluginRecord, module_name: str) -> ModuleType:
    try:
        return import_module(module_name)
    # SystemExit too: a module that exits on import must not end the caller's program.
    except (Exception, SystemExit) as error:
        if isinstance(error, ModuleNotFoundError) and _names_part_of(module_name, error.name):
            raise PluginBroken(
                f"{record.label} names the module {module_name!r}, which does not exist: {_FIX}"
            ) from error
        raise PluginBroken(
            f"{record.noun} {record.name!r} ({record.dist} {record.version}, {record.target}) failed to import: "
            f"{type(error).__name__}: {error}{_where(error, module_name)}. "
            f"Other plugins still work. Hide it with STEPPE_DISABLE_PLUGINS={record.name}."
        ) from error


def _names_part_of(module_name: str, missing: str | None) -> bool:
    return missing is not None and f"{module_name}.".startswith(f"{missing}.")


def _where(error: BaseException, module_name: str) -> str:
    """The line of the plugin's own package at which the error was raised, as ``" (acme_sim/plugin.py:3)"``."""
    package = module_name.partition(".")[0]
    places = [(frame.filename, frame.lineno) for frame in traceback.extract_tb(error.__traceback__)]
    if isinstance(error, SyntaxError) and error.filename:
        places.append((error.filename, error.lineno))
    places_in_package = [place(file, line, package) for file, line in places if _inside(file, package)]
    return f" ({places_in_package[-1]})" if places_in_package else ""


def _inside(file: str, package: str) -> bool:
    path = PurePath(file)
    return package in path.parts or path.stem == package


def place(file: str, line: int | None, package: str) -> str:
    """Format a line of a package's source, with the path from the package's folder on."""
    parts = PurePath(file).parts
    start = len(parts) - 1 - parts[::-1].index(package) if package in parts else len(parts) - 1
    return f"{'/'.join(parts[start:])}:{line}"
