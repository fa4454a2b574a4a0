"""Which modules a fork server may load ahead for the next workers: plugins, their libraries, and the caller's own."""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Collection, Sequence
from typing import NamedTuple

from steppe.registry import PluginRecord, current
from steppe.versions import library_version

__all__ = ["Loaded", "load", "loaded_since", "unsafe_roots"]

#: What every worker has.
_LOADED = frozenset({"steppe", "torch", "tensordict"})


class Loaded(NamedTuple):
    """What a worker has imported that later workers need too.

    Attributes:
        plugins: modules of plugins and the libraries that they wrap, oldest first.
        named: modules that what the worker was sent names: the caller's own, whose functions are pickled by name.
    """

    plugins: list[str]
    named: list[str]


def loaded_since(before: Collection[str], named: Sequence[str] = ()) -> Loaded:
    """Return what this process has imported since ``before``.

    A plugin whose module says ``fork_safe = False`` (its library starts threads when it is imported) is left out with
    its library.

    Args:
        before: names of modules that were there.
        named: modules that the caller names.
    """
    new = sys.modules.keys() - set(before)
    if not {name.partition(".")[0] for name in new} - _LOADED:
        return Loaded([], [])  # the usual end: the server has loaded all of it for workers before this one
    used = {name.partition(".")[0] for name in sys.modules}
    roots: set[str] = set()
    alone: set[str] = set()
    for record in current().found():
        name = record.target.partition(":")[0]
        root = name.partition(".")[0]
        if root in used and (safe := _fork_safe(record)) is not None:
            (roots if safe else alone).update((root, *_needs(record)))
    roots -= alone
    roots -= _LOADED
    plugins = [name for name in list(sys.modules) if name in new and name.partition(".")[0] in roots]
    own = [name for name in named if name in new and name.partition(".")[0] not in roots | alone | _LOADED]
    return Loaded(plugins, own)


def unsafe_roots(names: Collection[str]) -> set[str]:
    """Which of the top modules among ``names`` a plugin calls unsafe to fork, used or not: JAX, for example."""
    found: set[str] = set()
    for record in current().found():
        hit = {name.partition(".")[0] for name in names}.intersection(_needs(record)) - _LOADED
        if hit and record.kind == "env" and _fork_safe(record) is False:
            found |= hit
    return found


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


def _fork_safe(record: PluginRecord) -> bool | None:
    """Whether a plugin may be loaded ahead, as the module says that makes its environments; None for no such module.

    Whatever of a package was used, that module is asked. It is light: it imports neither torch nor its library.
    """
    name = record.target.partition(":")[0]
    try:
        module = importlib.import_module(name) if record.kind == "env" else sys.modules.get(name)
    except Exception:
        return None
    return None if module is None else bool(getattr(module, "fork_safe", True))


def _needs(record: PluginRecord) -> list[str]:
    """The import names of what a plugin requires, as far as they are those of the distributions."""
    needs = [*record.requires, *(need for choice in record.alternatives for need in choice.requires)]
    return [re.split(r"[^A-Za-z0-9_.-]", need, maxsplit=1)[0].replace("-", "_") for need in needs]
