"""Which libraries are there, and in which version, if possible without importing them."""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import sys

from packaging.version import InvalidVersion, Version

__all__ = ["is_installed", "library_version", "refresh"]

_versions: dict[str, Version] = {}
_installed: set[str] = set()

# Raised by refresh(): whoever keeps something derived from a version compares it.
epoch = 0


def refresh() -> None:
    """Forget every version that was read, after packages were installed or removed in the running process."""
    global epoch
    _versions.clear()
    _installed.clear()
    importlib.invalidate_caches()
    epoch += 1


def is_installed(library: str) -> bool:
    """Whether ``library`` (an import name) could be imported; it is not imported."""
    if library in _installed:
        return True
    if library in sys.modules:
        found = sys.modules[library] is not None
    else:
        found = importlib.util.find_spec(library) is not None
    # Only what was found is kept: a library installed a moment later must be seen.
    if found:
        _installed.add(library)
    return found


def library_version(library: str) -> Version | None:
    """The installed version of a library, or None where it is not installed.

    Read from its package metadata; a module without metadata is imported and asked for ``__version__``.

    Args:
        library: the import name, such as ``"gymnasium"``.

    Raises:
        ValueError: the library is there and states no version, or none that can be read.
    """
    version = _versions.get(library)
    if version is None:
        if not is_installed(library):
            return None
        stated = _from_metadata(library) or _from_module(library)
        try:
            version = Version(stated or "")
        except InvalidVersion:
            raise ValueError(f"{library} is installed, but states no version that can be read ({stated!r}).") from None
        _versions[library] = version
    return version


def _from_metadata(library: str) -> str | None:
    try:
        return importlib.metadata.version(library)
    except importlib.metadata.PackageNotFoundError:
        pass
    # The scan of every distribution is slow (0.1 s), so it comes only where the two names differ (cv2, opencv-python).
    names = importlib.metadata.packages_distributions().get(library, [])
    return importlib.metadata.version(names[0]) if len(set(names)) == 1 else None


def _from_module(library: str) -> str | None:
    stated = getattr(importlib.import_module(library), "__version__", None)
    return None if stated is None else str(stated)
