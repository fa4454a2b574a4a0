"""Names of the environments of RoboHive, and the library of gym that it uses. Torch-free."""

from __future__ import annotations

from typing import Any

from steppe.errors import LibraryMissing

__all__ = ["env_names", "import_robohive"]


def import_robohive() -> Any:
    """Import RoboHive, which registers its environments.

    Raises:
        LibraryMissing: its models are missing.
    """
    try:
        import robohive
    except ModuleNotFoundError as error:
        if "SimHive" not in str(error):
            raise
        raise LibraryMissing(
            "RoboHive has no models yet. Load them once, which needs git and a network: python -m robohive_init"
        ) from error
    return robohive


def env_names() -> list[str]:
    """Return the names of all environments, sorted."""
    return sorted(import_robohive().robohive_env_suite)
