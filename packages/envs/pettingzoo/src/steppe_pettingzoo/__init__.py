"""PettingZoo's multi-agent environments for steppe, parallel and turn-based."""

from __future__ import annotations

from typing import TYPE_CHECKING

from steppe.imports import lazy_exports

if TYPE_CHECKING:
    from .env import PettingZooEnv as PettingZooEnv
    from .wrapper import PettingZooWrapper as PettingZooWrapper
else:
    __getattr__, __dir__, __all__ = lazy_exports(__name__, {"env": ["PettingZooEnv"], "wrapper": ["PettingZooWrapper"]})
