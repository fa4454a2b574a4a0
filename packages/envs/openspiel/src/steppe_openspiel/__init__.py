"""OpenSpiel's games for steppe, sequential and simultaneous."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .env import OpenSpielEnv
    from .wrapper import OpenSpielWrapper

__all__ = ["OpenSpielEnv", "OpenSpielWrapper"]

_MODULES = {"OpenSpielEnv": "env", "OpenSpielWrapper": "wrapper"}


def __getattr__(name: str) -> object:
    # steppe imports this package to read its plugin module, so it must load without torch.
    if name not in _MODULES:
        raise AttributeError(f"module 'steppe_openspiel' has no attribute {name!r}")
    from importlib import import_module

    value = globals()[name] = getattr(import_module(f"steppe_openspiel.{_MODULES[name]}"), name)
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
