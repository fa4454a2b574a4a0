"""PettingZoo's multi-agent environments for steppe, parallel and turn-based."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .env import PettingZooEnv
    from .wrapper import PettingZooWrapper

__all__ = ["PettingZooEnv", "PettingZooWrapper"]

_MODULES = {"PettingZooEnv": "env", "PettingZooWrapper": "wrapper"}


def __getattr__(name: str) -> object:
    # steppe imports this package to read its plugin module, so it must load without torch.
    if name not in _MODULES:
        raise AttributeError(f"module 'steppe_pettingzoo' has no attribute {name!r}")
    from importlib import import_module

    value = globals()[name] = getattr(import_module(f"steppe_pettingzoo.{_MODULES[name]}"), name)
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
