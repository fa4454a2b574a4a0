"""Environments written as JAX functions, for steppe-brax and steppe-jumanji."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .env import JaxEnv
    from .functions import EnvFunctions, Outcome
    from .pytrees import leaf_paths
    from .single_env import check_single
    from .tensor_conversion import to_argument, to_jax, to_torch, torch_dtype
    from .worker_setup import prepare_worker

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
    "check_single": "single_env",
    "leaf_paths": "pytrees",
    "prepare_worker": "worker_setup",
    "to_argument": "tensor_conversion",
    "to_jax": "tensor_conversion",
    "to_torch": "tensor_conversion",
    "torch_dtype": "tensor_conversion",
}


def __getattr__(name: str) -> object:
    # Plugins import steppe_jax.hooks before the worker is set up. At that point JAX must not be imported yet.
    if name not in _MODULES:
        raise AttributeError(f"module 'steppe_jax' has no attribute {name!r}")
    return getattr(importlib.import_module(f".{_MODULES[name]}", __name__), name)


def __dir__() -> list[str]:
    return sorted(__all__)
