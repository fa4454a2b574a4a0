"""Environments that a program registers with gymnasium or gym itself: workers have to know them too.

A worker runs neither the script nor the imports in which ``gymnasium.register(...)`` stands, so what stands in the
library's own registry is carried over.
"""

from __future__ import annotations

import pickle
import sys
from collections.abc import Callable, Mapping
from typing import Any

from steppe.versions.backends import backend_members

__all__ = ["apply_registrations", "registrations"]

#: For each library that is loaded: its records by id, pickled one by one.
Registrations = dict[str, dict[str, bytes]]


def registrations(pickled: Callable[[Any], bytes]) -> Registrations:
    """What has been registered in this process beside the library's own environments.

    Args:
        pickled: pickles a record, by value where it has something of the script. A record for which it raises is left
            out, and the others are not.
    """
    found: Registrations = {}
    for library in backend_members("gym"):
        records = _registry(library)
        if records is None:
            continue
        added = {id: payload for id, record in records.items() if (payload := _payload(library, record, pickled))}
        if added:
            found[library] = added
    return found


def apply_registrations(library: str, records: Mapping[str, bytes]) -> None:
    """Register with a library that is imported here what ``registrations`` found in another process."""
    registry = _registry(library)
    if registry is None:
        return
    for id, payload in records.items():
        try:
            registry[id] = pickle.loads(payload)
        except Exception:
            continue  # of a module that is not to be found here: making it would fail as well


def _payload(library: str, record: Any, pickled: Callable[[Any], bytes]) -> bytes | None:
    made_by = getattr(record, "entry_point", None)
    if made_by is None or (isinstance(made_by, str) and made_by.startswith(f"{library}.")):
        return None  # the library's own, which it registers wherever it is imported
    try:
        plain = pickle.dumps(record, pickle.HIGHEST_PROTOCOL) if isinstance(made_by, str) else b"__main__"
        return pickled(record) if b"__main__" in plain else plain
    except Exception:
        return None  # it holds a lock or an open file, say; whoever asks for it hears that there is no such environment


def _registry(library: str) -> Any:
    """The dict of records of a library that is loaded."""
    module = sys.modules.get(f"{library}.envs.registration")
    registry = getattr(module, "registry", None)
    # A plain dict since gym 0.24; an object with a dict, or with a tree, before.
    found = registry if isinstance(registry, dict) else getattr(registry, "env_specs", None)
    return found if isinstance(found, dict) else None
