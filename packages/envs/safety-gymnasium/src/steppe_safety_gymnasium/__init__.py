"""Safety-Gymnasium for steppe: environments whose steps have a cost."""

from __future__ import annotations

from typing import TYPE_CHECKING

import steppe_gym_like
from steppe.imports import lazy_exports

if TYPE_CHECKING:
    from .env import SafetyGymnasiumEnv as SafetyGymnasiumEnv
    from .env import SafetyGymnasiumWrapper as SafetyGymnasiumWrapper
else:
    __getattr__, __dir__, __all__ = lazy_exports(__name__, {"env": ["SafetyGymnasiumEnv", "SafetyGymnasiumWrapper"]})

steppe_gym_like.keep_llvm_apart()
