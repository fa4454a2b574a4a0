"""Names of the environments of Pgx."""

from __future__ import annotations

__all__ = ["env_names"]


def env_names() -> list[str]:
    """Return the names of the environments that Pgx lists, sorted."""
    import pgx

    return sorted(pgx.available_envs())
