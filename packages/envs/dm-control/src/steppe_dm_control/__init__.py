"""Environments of dm_control for steppe: the suite, manipulation and locomotion."""

from __future__ import annotations

from typing import TYPE_CHECKING

import steppe_gym_like
from steppe.imports import lazy_exports

if TYPE_CHECKING:
    from .env import DMControlEnv as DMControlEnv
    from .wrapper import DMControlWrapper as DMControlWrapper
else:
    __getattr__, __dir__, __all__ = lazy_exports(__name__, {"env": ["DMControlEnv"], "wrapper": ["DMControlWrapper"]})

steppe_gym_like.keep_llvm_apart()
