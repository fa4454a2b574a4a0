"""Names of the environments of Gymnax."""

from __future__ import annotations

__all__ = ["env_names"]

#: Registered environments that cannot be made: the first fails in its own reset, the second downloads MNIST from an
#: address that no longer exists.
_BROKEN = ("SimpleBandit-bsuite", "MNISTBandit-bsuite")


def env_names() -> list[str]:
    """Return the names registered with Gymnax that can be made, sorted."""
    from gymnax.registration import registered_envs

    return sorted(name for name in registered_envs if name not in _BROKEN)
