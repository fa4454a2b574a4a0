"""Unity ML-Agents' games for steppe, with behaviors as groups of agents."""

from __future__ import annotations

from typing import TYPE_CHECKING

from steppe.imports import lazy_exports

if TYPE_CHECKING:
    from .env import UnityMLAgentsEnv as UnityMLAgentsEnv
    from .wrapper import UnityMLAgentsWrapper as UnityMLAgentsWrapper
else:
    __getattr__, __dir__, __all__ = lazy_exports(
        __name__, {"env": ["UnityMLAgentsEnv"], "wrapper": ["UnityMLAgentsWrapper"]}
    )
