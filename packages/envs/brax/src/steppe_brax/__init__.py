"""Environments of Brax, batched physics in JAX, for steppe."""

from __future__ import annotations

from typing import TYPE_CHECKING

from steppe.imports import lazy_exports

if TYPE_CHECKING:
    from .env import BraxEnv as BraxEnv
    from .env import BraxWrapper as BraxWrapper
else:
    __getattr__, __dir__, __all__ = lazy_exports(__name__, {"env": ["BraxEnv", "BraxWrapper"]})
