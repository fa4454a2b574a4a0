"""Unity ML-Agents' games for steppe, with behaviors as groups of agents."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .env import UnityMLAgentsEnv
    from .wrapper import UnityMLAgentsWrapper

__all__ = ["UnityMLAgentsEnv", "UnityMLAgentsWrapper"]

_MODULES = {"UnityMLAgentsEnv": "env", "UnityMLAgentsWrapper": "wrapper"}


def __getattr__(name: str) -> object:
    # steppe imports this package to read its plugin module, so it must load without torch.
    if name not in _MODULES:
        raise AttributeError(f"module 'steppe_unity' has no attribute {name!r}")
    from importlib import import_module

    value = globals()[name] = getattr(import_module(f"steppe_unity.{_MODULES[name]}"), name)
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
