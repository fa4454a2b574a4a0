"""SMACv2 for steppe: battles of StarCraft II for several agents."""

from __future__ import annotations

from typing import TYPE_CHECKING

from steppe.imports import lazy_exports

if TYPE_CHECKING:
    from .env import SMACv2Env as SMACv2Env
    from .wrapper import SMACv2Wrapper as SMACv2Wrapper
else:
    __getattr__, __dir__, __all__ = lazy_exports(__name__, {"env": ["SMACv2Env"], "wrapper": ["SMACv2Wrapper"]})
