"""Names of the environments of Gymnax."""

from __future__ import annotations

__all__ = ["BROKEN", "env_names"]

#: Registered environments that cannot be made, and why.
BROKEN = {
    "SimpleBandit-bsuite": "it fails in its own reset",
    "MNISTBandit-bsuite": "it downloads MNIST from an address that no longer exists",
}


def env_names() -> list[str]:
    """Return the names registered with Gymnax that can be made, sorted."""
    from gymnax.registration import registered_envs

    return sorted(name for name in registered_envs if name not in BROKEN)
