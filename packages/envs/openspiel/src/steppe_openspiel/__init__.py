"""OpenSpiel's games for steppe, sequential and simultaneous."""

from __future__ import annotations

from typing import TYPE_CHECKING

from steppe.imports import lazy_exports

if TYPE_CHECKING:
    from .env import OpenSpielEnv as OpenSpielEnv
    from .wrapper import OpenSpielWrapper as OpenSpielWrapper
else:
    __getattr__, __dir__, __all__ = lazy_exports(__name__, {"env": ["OpenSpielEnv"], "wrapper": ["OpenSpielWrapper"]})
