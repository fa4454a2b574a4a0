"""Which libraries are installed, and in which versions, if possible without importing them."""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import sys

from packaging.version import InvalidVersion, Version

__all__ = ["is_installed", "library_version"]

# A version is read once: a library that was replaced on the disk stays imported as it was.
_versions: dict[str, Version] = {}


def is_installed(library: str) -> bool:
    """Whether ``library`` (an import name) can be imported, without importing it."""
    if library in sys.modules:
        return sys.modules[library] is not None
    return importlib.util.find_spec(library) is not None


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
