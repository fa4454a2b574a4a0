"""Names of the environments of MuJoCo Playground."""

from __future__ import annotations

__all__ = ["env_names"]


def env_names() -> list[str]:
    """Return the names of all environments, sorted."""
    from mujoco_playground import registry

    return sorted(registry.ALL_ENVS)
