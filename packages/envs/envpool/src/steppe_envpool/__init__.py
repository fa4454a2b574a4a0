"""EnvPool's C++ environments for steppe."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .env import EnvPoolEnv, MultiThreadedEnv, MultiThreadedEnvWrapper

__all__ = ["EnvPoolEnv", "MultiThreadedEnv", "MultiThreadedEnvWrapper"]


def __getattr__(name: str) -> object:
    # steppe imports this package to read its plugin module, so it must load without torch.
    if name not in __all__:
        raise AttributeError(f"module 'steppe_envpool' has no attribute {name!r}")
    from . import env

    return getattr(env, name)


def __dir__() -> list[str]:
    return sorted(__all__)
