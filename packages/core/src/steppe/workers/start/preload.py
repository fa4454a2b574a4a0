"""Modules that a fork server may import for later workers: plugins, their libraries, and modules of the caller."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Collection, Sequence

from steppe.registry import PluginRecord, current
from steppe.versions import library_version

__all__ = ["load", "load_plugins", "loaded_since", "modules_of_caller", "unsafe_roots"]

#: Packages that the fork server always imports.
_LOADED = frozenset({"steppe", "torch", "tensordict"})


def loaded_since(before: Collection[str]) -> list[str]:
    """Return the modules of plugins, and of the libraries that they wrap, that this process has imported since.

    A plugin with ``fork_safe = False`` in its module (because its library starts threads on import) is left out, with
    its library.

    Args:
        before: names of modules that were imported before.

    Returns:
        The modules in the order of their import.
    """
    new = sys.modules.keys() - set(before)
    if not {name.partition(".")[0] for name in new} - _LOADED:
        return []  # mostly, because the server has imported everything for earlier workers
    used = {name.partition(".")[0] for name in sys.modules}
    roots: set[str] = set()
    unsafe: set[str] = set()
    for record in current().found():
        root = record.module.partition(".")[0]
        if root in used and (safe := _fork_safe(record)) is not None:
            (roots if safe else unsafe).update((root, *record.needs))
    roots -= unsafe | _LOADED
    return [name for name in list(sys.modules) if name in new and name.partition(".")[0] in roots]


def modules_of_caller(names: Collection[str]) -> list[str]:
    """Return the modules that are the caller's own, for a fork of the fork server to import.

    Modules of plugins and of their libraries are imported by the fork server itself, once workers have used them.

    Args:
        names: modules that the payload of the workers refers to.
    """
    known = {*sys.stdlib_module_names, *(name.partition(".")[0] for name in sys.modules)}
    for record in current().found():
        known.update((record.module.partition(".")[0], *record.needs))
    return sorted(name for name in names if name.partition(".")[0] not in known)


def unsafe_roots(names: Collection[str]) -> set[str]:
    """Return the top-level modules among ``names`` that a plugin declares unsafe to fork, such as JAX."""
    imported = {name.partition(".")[0] for name in names} - _LOADED
    unsafe: set[str] = set()
    for record in current().found():
        hit = imported.intersection(record.needs)
        if hit and record.kind == "env" and _fork_safe(record) is False:
            unsafe |= hit
    return unsafe


def load(names: Sequence[str]) -> None:
    """Import modules. Errors are ignored here: the workers will raise them again."""
    for name in names:
        try:
            importlib.import_module(name)
        except Exception:
            continue


def load_plugins() -> None:
    """Load the plugins whose modules are imported, and read the versions of their libraries, as workers would do."""
    for record in current().found():
        if record.module in sys.modules:
            try:
                current().plugins.load(record)
                for need in record.needs:
                    library_version(need)
            except Exception:
                continue


def _fork_safe(record: PluginRecord) -> bool | None:
    """Whether the module of a plugin declares it safe to fork; None if the module is not imported.

    The module of an environment plugin is imported for this. It imports neither torch nor its library.
    """
    try:
        module = importlib.import_module(record.module) if record.kind == "env" else sys.modules.get(record.module)
    except Exception:
        return None
    return None if module is None else bool(getattr(module, "fork_safe", True))
