"""Environments that are functions of JAX, as environments of steppe: what steppe-brax and steppe-jumanji share."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .crossing import to_argument, to_jax, to_torch, torch_dtype
    from .env import JaxEnv
    from .functions import EnvFunctions, Outcome
    from .pytrees import leaf_paths
    from .single import check_single
    from .workers import prepare_worker

__all__ = [
    "EnvFunctions",
    "JaxEnv",
    "Outcome",
    "check_single",
    "leaf_paths",
    "prepare_worker",
    "to_argument",
    "to_jax",
    "to_torch",
    "torch_dtype",
]

_MODULES = {
    "EnvFunctions": "functions",
    "JaxEnv": "env",
    "Outcome": "functions",
    "check_single": "single",
    "leaf_paths": "pytrees",
    "prepare_worker": "workers",
    "to_argument": "crossing",
    "to_jax": "crossing",
    "to_torch": "crossing",
    "torch_dtype": "crossing",
}


def __getattr__(name: str) -> Any:
    # Plugins import steppe_jax.hooks without JAX, and before a worker is prepared for it.
    if name not in _MODULES:
        raise AttributeError(f"module 'steppe_jax' has no attribute {name!r}")
    return getattr(importlib.import_module(f".{_MODULES[name]}", __name__), name)


def __dir__() -> list[str]:
    return sorted(__all__)
