"""Names of the environments of Brax."""

from __future__ import annotations

__all__ = ["env_names"]


def env_names() -> list[str]:
    """Return the names registered with ``brax.envs``, sorted."""
    from brax import envs

    return sorted(vars(envs)["_envs"])
