"""SMACv2 for steppe: battles of StarCraft II for several agents."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .env import SMACv2Env
    from .wrapper import SMACv2Wrapper

__all__ = ["SMACv2Env", "SMACv2Wrapper"]


def __getattr__(name: str) -> object:
    # steppe imports this package to read its plugin module, so it must load without torch.
    if name not in __all__:
        raise AttributeError(f"module 'steppe_smacv2' has no attribute {name!r}")
    from . import env

    return getattr(env, name)


def __dir__() -> list[str]:
    return sorted(__all__)
