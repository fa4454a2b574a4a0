"""Names of the environments of Safety-Gymnasium. Torch-free."""

from __future__ import annotations

__all__ = ["env_names"]


def env_names() -> list[str]:
    """Return the ids that Safety-Gymnasium registers, sorted."""
    import safety_gymnasium  # noqa: F401 - registers them
    from safety_gymnasium.utils.registration import safe_registry

    return sorted(safe_registry)
