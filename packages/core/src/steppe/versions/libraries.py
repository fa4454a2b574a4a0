"""Which libraries are installed, and in which versions, if possible without importing them."""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import sys

from packaging.version import InvalidVersion, Version

__all__ = ["is_installed", "library_version", "refresh"]

_versions: dict[str, Version] = {}
_installed: set[str] = set()

# Counts calls of refresh(): values derived from a version are valid as long as it has not changed.
epoch = 0


def refresh() -> None:
    """Clear the cache of versions, after packages were installed or removed while the process runs."""
    global epoch
    _versions.clear()
    _installed.clear()
    importlib.invalidate_caches()
    epoch += 1


def is_installed(library: str) -> bool:
    """Whether ``library`` (an import name) can be imported, without importing it."""
    if library in _installed:
        return True
    if library in sys.modules:
        present = sys.modules[library] is not None
    else:
        present = importlib.util.find_spec(library) is not None
    # Only presence is cached, because a library may be installed a moment later.
    if present:
        _installed.add(library)
    return present


def library_version(library: str) -> Version | None:
    """Return the installed version of a library, or None if it is not installed.

    The version is read from package metadata; a module without metadata is imported for its ``__version__``.

    Args:
        library: the import name, such as ``"gymnasium"``.

    Raises:
        ValueError: the library has no version, or one that cannot be parsed.
    """
    version = _versions.get(library)
    if version is None:
        if not is_installed(library):
            return None
        stated = _from_metadata(library) or _from_module(library)
        try:
            version = Version(stated or "")
        except InvalidVersion:
            raise ValueError(f"{library} is installed, but its version cannot be read ({stated!r}).") from None
        _versions[library] = version
    return version


def _from_metadata(library: str) -> str | None:
    try:
        return importlib.metadata.version(library)
    except importlib.metadata.PackageNotFoundError:
        pass
    # Scanning every distribution takes 0.1 s, so it is done only if the two names differ (cv2, opencv-python).
    names = importlib.metadata.packages_distributions().get(library, [])
    return importlib.metadata.version(names[0]) if len(set(names)) == 1 else None


def _from_module(library: str) -> str | None:
    stated = getattr(importlib.import_module(library), "__version__", None)
    return None if stated is None else str(stated)
