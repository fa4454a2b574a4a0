"""Names of the environments of MO-Gymnasium. Torch-free."""

from __future__ import annotations

__all__ = ["available_names"]


def available_names() -> list[str]:
    """Return the ids that MO-Gymnasium registers with gymnasium, sorted."""
    import gymnasium
    import mo_gymnasium  # noqa: F401 - registers them

    return sorted(
        name for name, spec in gymnasium.registry.items() if str(spec.entry_point).startswith("mo_gymnasium.")
    )
