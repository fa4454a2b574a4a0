"""Which modules a fork server may load ahead for the next workers: plugins and the libraries that they wrap."""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Sequence

from steppe.registry import PluginRecord, current
from steppe.versions import library_version

__all__ = ["load", "loaded_since"]

#: What every worker has.
_LOADED = frozenset({"steppe", "torch", "tensordict"})


def loaded_since(before: set[str]) -> list[str]:
    """Return modules of plugins and their libraries that this process has imported since ``before``, oldest first.

    A plugin whose module says ``fork_safe = False`` (its library starts threads when it is imported) is left out with
    its library, and so is everything that belongs to no plugin: the user's own code is never run ahead.
    """
    if not {name.partition(".")[0] for name in sys.modules.keys() - before} - _LOADED:
        return []  # the usual end: the server has loaded all of it for workers before this one
    used = {name.partition(".")[0] for name in sys.modules}
    roots: set[str] = set()
    alone: set[str] = set()
    for record in current().found():
        name = record.target.partition(":")[0]
        root = name.partition(".")[0]
        if root not in used:
            continue
        try:
            # Whatever of a package was used, the module that makes its environments says whether it may be loaded
            # ahead. It is light: it imports neither torch nor its library.
            module = importlib.import_module(name) if record.kind == "env" else sys.modules.get(name)
        except Exception:
            continue
        if module is not None:
            (roots if getattr(module, "fork_safe", True) else alone).update((root, *_needs(record)))
    roots -= alone
    roots -= _LOADED
    return [name for name in list(sys.modules) if name not in before and name.partition(".")[0] in roots]


def load(names: Sequence[str]) -> None:
    """Import modules, and look up all that the plugins among them look up once; what fails is left to the workers."""
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


def _needs(record: PluginRecord) -> list[str]:
    """The import names of what a plugin requires, as far as they are those of the distributions."""
    needs = [*record.requires, *(need for choice in record.alternatives for need in choice.requires)]
    return [re.split(r"[^A-Za-z0-9_.-]", need, maxsplit=1)[0].replace("-", "_") for need in needs]
