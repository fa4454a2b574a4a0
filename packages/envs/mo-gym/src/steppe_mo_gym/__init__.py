"""MO-Gymnasium's multi-objective environments for steppe."""

from __future__ import annotations

from typing import TYPE_CHECKING

import steppe_gym_like
from steppe.imports import lazy_exports

if TYPE_CHECKING:
    from .env import MOGymEnv as MOGymEnv
    from .env import MOGymWrapper as MOGymWrapper
else:
    __getattr__, __dir__, __all__ = lazy_exports(__name__, {"env": ["MOGymEnv", "MOGymWrapper"]})

steppe_gym_like.keep_llvm_apart()
