"""Environments of VMAS, batched multi-agent simulation in torch, for steppe."""

from __future__ import annotations

from typing import TYPE_CHECKING

from steppe.imports import lazy_exports

if TYPE_CHECKING:
    from .env import VmasEnv as VmasEnv
    from .env import VmasWrapper as VmasWrapper
else:
    __getattr__, __dir__, __all__ = lazy_exports(__name__, {"env": ["VmasEnv", "VmasWrapper"]})
