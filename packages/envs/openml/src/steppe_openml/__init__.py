"""OpenML's data sets as contextual bandits for steppe."""

from __future__ import annotations

from typing import TYPE_CHECKING

from steppe.imports import lazy_exports

if TYPE_CHECKING:
    from .env import OpenMLEnv as OpenMLEnv
else:
    __getattr__, __dir__, __all__ = lazy_exports(__name__, {"env": ["OpenMLEnv"]})
