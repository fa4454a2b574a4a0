"""The environments that Jumanji has, by name."""

from __future__ import annotations

__all__ = ["env_names"]


def env_names() -> list[str]:
    """Names for ``make_env("jumanji:...")``: those registered with Jumanji, in order."""
    import jumanji

    return sorted(jumanji.registered_environments())
