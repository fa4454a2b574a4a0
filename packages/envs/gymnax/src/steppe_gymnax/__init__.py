"""Gymnax's environments in JAX for steppe."""

from __future__ import annotations

from typing import TYPE_CHECKING

from steppe.imports import lazy_exports

if TYPE_CHECKING:
    from .env import GymnaxEnv as GymnaxEnv
    from .env import GymnaxWrapper as GymnaxWrapper
    from .functions import changed_params as changed_params
else:
    __getattr__, __dir__, __all__ = lazy_exports(
        __name__, {"env": ["GymnaxEnv", "GymnaxWrapper"], "functions": ["changed_params"]}
    )
