"""Modules that a fork server may import for later workers: plugins, their libraries, and modules of the caller."""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Collection, Sequence
from typing import NamedTuple

from steppe.registry import PluginRecord, current
from steppe.versions import library_version

__all__ = ["Loaded", "load", "loaded_since", "modules_of_caller", "unsafe_roots"]

#: Packages that the fork server always imports.
_LOADED = frozenset({"steppe", "torch", "tensordict"})

#: What steppe and torch import themselves, by the names of the modules.
_DEPENDENCIES = frozenset({"cloudpickle", "importlib_metadata", "numpy", "packaging", "pluggy", "rich"})


class Loaded(NamedTuple):
    """Modules that a worker has imported, and later workers will need too.

    Attributes:
        plugins: modules of plugins and of the libraries that they wrap, in the order of their import.
        named: other modules that the worker's payload refers to by name: the caller's own modules.
    """

    plugins: list[str]
    named: list[str]


def loaded_since(before: Collection[str], named: Sequence[str] = ()) -> Loaded:
    """Return the modules that this process has imported since ``before``.

    A plugin with ``fork_safe = False`` in its module (because its library starts threads on import) is left out, with
    its library.

    Args:
        before: names of modules that were imported before.
        named: modules that the worker's payload refers to.
    """
    new = sys.modules.keys() - set(before)
    if not {name.partition(".")[0] for name in new} - _LOADED:
        return Loaded([], [])  # mostly, because the server has imported everything for earlier workers
    used = {name.partition(".")[0] for name in sys.modules}
    roots: set[str] = set()
    unsafe: set[str] = set()
    for record in current().found():
        name = record.target.partition(":")[0]
        root = name.partition(".")[0]
        if root in used and (safe := _fork_safe(record)) is not None:
            (roots if safe else unsafe).update((root, *_needs(record)))
    roots -= unsafe
    roots -= _LOADED
    plugins = [name for name in list(sys.modules) if name in new and name.partition(".")[0] in roots]
    own = [name for name in named if name in new and name.partition(".")[0] not in roots | unsafe | _LOADED]
    return Loaded(plugins, own)


def modules_of_caller(names: Collection[str]) -> list[str]:
    """Return the modules that a fork of the fork server is to import before the first worker starts.

    These are the caller's own. Modules of plugins and of their libraries are imported by the fork server itself, once
    workers have used them. If this process has imported a library that is unsafe to fork, the caller's modules may
    import it too: workers then import them, and nothing is returned.

    Args:
        names: modules that the payload of the workers refers to.
    """
    known = {"__main__", *_LOADED, *_DEPENDENCIES, *sys.stdlib_module_names}
    for record in current().found():
        known.update((record.target.partition(":")[0].partition(".")[0], *_needs(record)))
    own = sorted(name for name in names if name.partition(".")[0] not in known)
    return [] if own and unsafe_roots(sys.modules) else own


def unsafe_roots(names: Collection[str]) -> set[str]:
    """Return the top-level modules among ``names`` that a plugin declares unsafe to fork, such as JAX."""
    unsafe: set[str] = set()
    for record in current().found():
        hit = {name.partition(".")[0] for name in names}.intersection(_needs(record)) - _LOADED
        if hit and record.kind == "env" and _fork_safe(record) is False:
            unsafe |= hit
    return unsafe


def load(names: Sequence[str]) -> None:
    """Import modules, and load the plugins among them. Errors are ignored here: the workers will raise them again."""
    for name in names:
        try:
            importlib.import_module(name)
        except Exception:
            continue
    for record in current().found():
        if record.target.partition(":")[0] in names:
            try:
                current().plugins.load(record)
                for need in _needs(record):
                    library_version(need)
            except Exception:
                continue


def _fork_safe(record: PluginRecord) -> bool | None:
    """Whether the module of a plugin declares it safe to fork; None if the module is not imported.

    The module of an environment plugin is imported for this. It imports neither torch nor its library.
    """
    name = record.target.partition(":")[0]
    try:
        module = importlib.import_module(name) if record.kind == "env" else sys.modules.get(name)
    except Exception:
        return None
    return None if module is None else bool(getattr(module, "fork_safe", True))


def _needs(record: PluginRecord) -> list[str]:
    """The distributions that a plugin requires, as import names. (Some libraries are imported by another name.)"""
    needs = [*record.requires, *(need for choice in record.alternatives for need in choice.requires)]
    return [re.split(r"[^A-Za-z0-9_.-]", need, maxsplit=1)[0].replace("-", "_") for need in needs]
