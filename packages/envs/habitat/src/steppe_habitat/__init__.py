"""Habitat for steppe: embodied agents in scanned rooms."""

from __future__ import annotations

from typing import TYPE_CHECKING

from steppe.imports import lazy_exports

if TYPE_CHECKING:
    from .env import HabitatEnv as HabitatEnv
    from .env import HabitatWrapper as HabitatWrapper
else:
    __getattr__, __dir__, __all__ = lazy_exports(__name__, {"env": ["HabitatEnv", "HabitatWrapper"]})
