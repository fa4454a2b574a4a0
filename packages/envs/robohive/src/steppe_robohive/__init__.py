"""RoboHive for steppe: robots and muscles in MuJoCo, with cameras."""

from __future__ import annotations

from typing import TYPE_CHECKING

import steppe_gym_like
from steppe.imports import lazy_exports

if TYPE_CHECKING:
    from .env import RoboHiveEnv as RoboHiveEnv
    from .env import RoboHiveWrapper as RoboHiveWrapper
else:
    __getattr__, __dir__, __all__ = lazy_exports(__name__, {"env": ["RoboHiveEnv", "RoboHiveWrapper"]})

steppe_gym_like.keep_llvm_apart()
