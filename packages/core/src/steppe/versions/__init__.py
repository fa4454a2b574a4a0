"""Dispatch by library version, and the choice between gymnasium and gym. Imports no torch.

* ``implement_for`` declares several implementations of one function, each for a range of versions of a library.
* ``set_gym_backend`` chooses the library for a ``with`` block, for a function, or for the process.

Nothing is monkey-patched: the choice is looked up at each call, so two threads may use two backends at the same time.
"""

from __future__ import annotations

from steppe.versions.backends import (
    apply_backend,
    effective_backend,
    gym_backend,
    gym_backend_name,
    set_gym_backend,
)
from steppe.versions.dispatch import implement_for
from steppe.versions.gym_registrations import apply_registrations, registrations
from steppe.versions.libraries import library_version
from steppe.versions.ranges import VersionRange

__all__ = [
    "VersionRange",
    "apply_backend",
    "apply_registrations",
    "effective_backend",
    "gym_backend",
    "gym_backend_name",
    "implement_for",
    "library_version",
    "registrations",
    "set_gym_backend",
]
