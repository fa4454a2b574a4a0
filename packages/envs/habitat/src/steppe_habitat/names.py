"""Names of the tasks of Habitat. Torch-free."""

from __future__ import annotations

__all__ = ["env_names"]


def env_names() -> list[str]:
    """Return the ids that Habitat registers with gym, sorted."""
    import gym
    import habitat.gym  # noqa: F401 - registers them

    registry = gym.envs.registry
    # gym before 0.24 has an object that keeps its entries in a dict.
    return sorted(name for name in getattr(registry, "env_specs", registry) if name.startswith("Habitat"))
