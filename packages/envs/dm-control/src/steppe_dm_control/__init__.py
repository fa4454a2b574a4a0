"""Environments of dm_control for steppe: the suite, manipulation and locomotion."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .env import DMControlEnv
    from .wrapper import DMControlWrapper

__all__ = ["DMControlEnv", "DMControlWrapper"]

_MODULES = {"DMControlEnv": "env", "DMControlWrapper": "wrapper"}


def __getattr__(name: str) -> object:
    # steppe imports this package to read its plugin module, so it must load without torch.
    if name not in _MODULES:
        raise AttributeError(f"module 'steppe_dm_control' has no attribute {name!r}")
    from importlib import import_module

    value = globals()[name] = getattr(import_module(f"steppe_dm_control.{_MODULES[name]}"), name)
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
