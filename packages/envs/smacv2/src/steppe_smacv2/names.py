"""The installed SMACv2, and the names of its maps.

This module does not import torch.
"""

from __future__ import annotations

from steppe.errors import LibraryMissing, LibraryVersionError
from steppe.registry import LibraryInfo, installed_library

__all__ = ["installed_smacv2", "map_names"]

_INSTALL = "git clone https://github.com/oxwhirl/smacv2, then: pip install -e smacv2, and install StarCraft II"
_AT_LEAST = "1.0"


def installed_smacv2() -> LibraryInfo:
    """Describe the installed SMACv2.

    Raises:
        LibraryMissing: it is not installed.
        LibraryVersionError: it is too old.
    """
    from packaging.version import Version

    try:
        info = installed_library("SMACv2", "smacv2")
    except ModuleNotFoundError:
        raise LibraryMissing(f"steppe-smacv2 needs SMACv2>={_AT_LEAST}, which is not installed. {_INSTALL}.") from None
    if Version(info.version) < Version(_AT_LEAST):
        raise LibraryVersionError(
            f"steppe-smacv2 supports SMACv2>={_AT_LEAST}, but SMACv2 {info.version} is installed in "
            f"{info.module_file}. {_INSTALL}."
        )
    return info


def map_names() -> list[str]:
    """Return the names of all maps, sorted."""
    installed_smacv2()
    from smacv2.env.starcraft2.maps.smac_maps import get_smac_map_registry

    return sorted(get_smac_map_registry())
