"""Names of the environments of Craftax."""

from __future__ import annotations

__all__ = ["env_names"]


def env_names() -> list[str]:
    """Return the names of all environments."""
    return [f"Craftax{game}-{view}-v1" for game in ("", "-Classic") for view in ("Pixels", "Symbolic")]
