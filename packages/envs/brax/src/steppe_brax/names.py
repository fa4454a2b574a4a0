"""The environments that Brax has, by name."""

from __future__ import annotations

__all__ = ["env_names"]


def env_names() -> list[str]:
    """Names for ``make_env("brax:...")``: those registered with ``brax.envs``, in order."""
    from brax import envs

    return sorted(vars(envs)["_envs"])
