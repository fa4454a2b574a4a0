"""Procgen's generated games for steppe, in batches of the library."""

from __future__ import annotations

from typing import TYPE_CHECKING

from steppe.imports import lazy_exports

if TYPE_CHECKING:
    from .env import ProcgenEnv as ProcgenEnv
    from .env import ProcgenWrapper as ProcgenWrapper
else:
    __getattr__, __dir__, __all__ = lazy_exports(__name__, {"env": ["ProcgenEnv", "ProcgenWrapper"]})
