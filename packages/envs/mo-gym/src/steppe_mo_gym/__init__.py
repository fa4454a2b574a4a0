"""MO-Gymnasium's multi-objective environments for steppe."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .env import MOGymEnv, MOGymWrapper

__all__ = ["MOGymEnv", "MOGymWrapper"]


def __getattr__(name: str) -> object:
    # steppe imports this package to read its plugin module, so it must load without torch.
    if name not in __all__:
        raise AttributeError(f"module 'steppe_mo_gym' has no attribute {name!r}")
    from importlib import import_module

    value = globals()[name] = getattr(import_module("steppe_mo_gym.env"), name)
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
