"""Environments written as JAX functions, for the plugins of JAX libraries."""

from __future__ import annotations

from typing import TYPE_CHECKING

from steppe.imports import lazy_exports

if TYPE_CHECKING:
    from .env import JaxEnv as JaxEnv
    from .functions import EnvFunctions as EnvFunctions
    from .functions import Outcome as Outcome
    from .functions import with_random_key as with_random_key
    from .own_arguments import own_arguments as own_arguments
    from .pytrees import leaf_paths as leaf_paths
    from .single_env import check_single as check_single
    from .tensor_conversion import to_argument as to_argument
    from .tensor_conversion import to_jax as to_jax
    from .tensor_conversion import to_torch as to_torch
    from .tensor_conversion import torch_dtype as torch_dtype
    from .worker_setup import prepare_worker as prepare_worker
else:
    # Plugins import steppe_jax.hooks before the worker is set up, when JAX must not be imported yet.
    __getattr__, __dir__, __all__ = lazy_exports(
        __name__,
        {
            "env": ["JaxEnv"],
            "functions": ["EnvFunctions", "Outcome", "with_random_key"],
            "own_arguments": ["own_arguments"],
            "pytrees": ["leaf_paths"],
            "single_env": ["check_single"],
            "tensor_conversion": ["to_argument", "to_jax", "to_torch", "torch_dtype"],
            "worker_setup": ["prepare_worker"],
        },
    )
