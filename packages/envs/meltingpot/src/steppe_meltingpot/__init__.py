"""Melting Pot's substrates for steppe, games of several agents with images."""

from __future__ import annotations

from typing import TYPE_CHECKING

from steppe.imports import lazy_exports

if TYPE_CHECKING:
    from .env import MeltingpotEnv as MeltingpotEnv
    from .wrapper import MeltingpotWrapper as MeltingpotWrapper
else:
    __getattr__, __dir__, __all__ = lazy_exports(__name__, {"env": ["MeltingpotEnv"], "wrapper": ["MeltingpotWrapper"]})
