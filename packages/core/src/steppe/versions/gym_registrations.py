"""Environments that a program registers with gymnasium or gym itself, for workers to have them too.

A worker does not run the script or imports that call ``gymnasium.register(...)``, so the entries of the library's own
registry are sent to it.
"""

from __future__ import annotations

import pickle
import sys
from collections.abc import Callable, Mapping

from steppe.versions.backends import GYM_LIBRARIES

__all__ = ["apply_registrations", "registrations"]

#: By library the records of its registry, by id, each pickled.
Registrations = dict[str, dict[str, bytes]]


def registrations(pickled: Callable[[object], bytes]) -> Registrations:
    """Return the environments that this process has registered, without the library's own.

    Args:
        pickled: pickles a record by value. Records for which it raises are left out.
    """
    result: Registrations = {}
    for library in GYM_LIBRARIES:
        records = _registry(library)
        if records is None:
            continue
        added = {id: payload for id, record in records.items() if (payload := _payload(library, record, pickled))}
        if added:
            result[library] = added
    return result


def apply_registrations(library: str, records: Mapping[str, bytes]) -> None:
    """Register the environments of another process, as ``registrations`` returned them, with an imported library."""
    registry = _registry(library)
    if registry is None:
        return
    for id, payload in records.items():
        try:
            registry[id] = pickle.loads(payload)
        except Exception:
            continue  # its module cannot be imported here, so the environment could not be made either


def _payload(library: str, record: object, pickled: Callable[[object], bytes]) -> bytes | None:
    made_by = getattr(record, "entry_point", None)
    if made_by is None or (isinstance(made_by, str) and made_by.startswith(f"{library}.")):
        return None  # the library registers it itself when it is imported
    try:
        by_name = pickle.dumps(record, pickle.HIGHEST_PROTOCOL) if isinstance(made_by, str) else b"__main__"
        return pickled(record) if b"__main__" in by_name else by_name
    except Exception:
        return None  # it holds a lock or an open file, for example; in a worker its id is unknown then


def _registry(library: str) -> dict[str, object] | None:
    """Return the dict of records of a library, None if the library is not imported."""
    module = sys.modules.get(f"{library}.envs.registration")
    registry = getattr(module, "registry", None)
    # A dict since gym 0.24; before, an object with a dict or with a tree.
    records = registry if isinstance(registry, dict) else getattr(registry, "env_specs", None)
    return records if isinstance(records, dict) else None
