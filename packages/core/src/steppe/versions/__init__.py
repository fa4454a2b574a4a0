"""Dispatch by library version, and the choice between interchangeable libraries. Imports no torch.

* ``implement_for`` declares several implementations of one function, each for a range of versions of a library.
* ``set_backend`` and ``set_gym_backend`` choose one of several interchangeable libraries (a *family*, such as gymnasium
  and gym) for a ``with`` block, for a function, or for the process.

Nothing is monkey-patched: the choice is looked up at each call, so two threads may use two backends at the same time.
"""

from __future__ import annotations

from steppe.versions.backends import (
    apply_backends,
    backend_members,
    backend_module,
    backend_name,
    carry_backends,
    effective_backends,
    gym_backend,
    register_backend_family,
    set_backend,
    set_gym_backend,
)
from steppe.versions.dispatch import implement_for
from steppe.versions.gym_registrations import apply_registrations, registrations
from steppe.versions.libraries import library_version, refresh
from steppe.versions.ranges import VersionRange

__all__ = [
    "VersionRange",
    "apply_backends",
    "apply_registrations",
    "backend_members",
    "backend_module",
    "backend_name",
    "carry_backends",
    "effective_backends",
    "gym_backend",
    "implement_for",
    "library_version",
    "refresh",
    "register_backend_family",
    "registrations",
    "set_backend",
    "set_gym_backend",
]
