"""Melting Pot's substrates for steppe, games of several agents with images."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .env import MeltingpotEnv
    from .wrapper import MeltingpotWrapper

__all__ = ["MeltingpotEnv", "MeltingpotWrapper"]

_MODULES = {"MeltingpotEnv": "env", "MeltingpotWrapper": "wrapper"}


def __getattr__(name: str) -> object:
    # steppe imports this package to read its plugin module, so it must load without torch.
    if name not in _MODULES:
        raise AttributeError(f"module 'steppe_meltingpot' has no attribute {name!r}")
    from importlib import import_module

    value = globals()[name] = getattr(import_module(f"steppe_meltingpot.{_MODULES[name]}"), name)
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
