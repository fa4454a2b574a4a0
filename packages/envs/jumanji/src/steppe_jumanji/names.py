"""Names of the environments of Jumanji."""

from __future__ import annotations

__all__ = ["env_names"]


def env_names() -> list[str]:
    """Return the names registered with Jumanji, sorted."""
    import jumanji

    return sorted(jumanji.registered_environments())
