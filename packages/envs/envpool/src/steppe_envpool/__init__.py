"""EnvPool's C++ environments for steppe."""

from __future__ import annotations

from typing import TYPE_CHECKING

from steppe.imports import lazy_exports

if TYPE_CHECKING:
    from .env import EnvPoolEnv as EnvPoolEnv
    from .env import MultiThreadedEnv as MultiThreadedEnv
    from .env import MultiThreadedEnvWrapper as MultiThreadedEnvWrapper
else:
    __getattr__, __dir__, __all__ = lazy_exports(
        __name__, {"env": ["EnvPoolEnv", "MultiThreadedEnv", "MultiThreadedEnvWrapper"]}
    )
