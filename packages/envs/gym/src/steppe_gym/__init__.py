"""Environments of gym (0.13 or newer) and gymnasium (0.26 or newer) for steppe."""

from __future__ import annotations

from typing import TYPE_CHECKING

from steppe.versions import gym_backend, set_gym_backend

if TYPE_CHECKING:
    from .actions import action_decoder
    from .atari import AtariScreens, atari_preprocessing
    from .env import GymEnv
    from .gym_export import as_gym, register_gym
    from .pixels import are_frames
    from .spaces import register_gym_spec_conversion, space_to_spec
    from .to_space import spec_to_space
    from .values import SpaceReader
    from .vector_env import BatchVectorEnv, as_vector_env, make_vec, register_vec
    from .vector_rows import VectorRows
    from .wrapper import GymWrapper

__all__ = [
    "AtariScreens",
    "BatchVectorEnv",
    "GymEnv",
    "GymWrapper",
    "SpaceReader",
    "VectorRows",
    "action_decoder",
    "are_frames",
    "as_gym",
    "as_vector_env",
    "atari_preprocessing",
    "gym_backend",
    "make_vec",
    "register_gym",
    "register_gym_spec_conversion",
    "register_vec",
    "set_gym_backend",
    "space_to_spec",
    "spec_to_space",
]

_MODULES = {
    "AtariScreens": "atari",
    "BatchVectorEnv": "vector_env",
    "GymEnv": "env",
    "GymWrapper": "wrapper",
    "SpaceReader": "values",
    "VectorRows": "vector_rows",
    "action_decoder": "actions",
    "are_frames": "pixels",
    "as_gym": "gym_export",
    "as_vector_env": "vector_env",
    "atari_preprocessing": "atari",
    "make_vec": "vector_env",
    "register_gym": "gym_export",
    "register_gym_spec_conversion": "spaces",
    "register_vec": "vector_env",
    "space_to_spec": "spaces",
    "spec_to_space": "to_space",
}


def __getattr__(name: str) -> object:
    # steppe imports this package to read its plugin module, so it must load without torch.
    from importlib import import_module

    if name not in _MODULES:
        raise AttributeError(f"module 'steppe_gym' has no attribute {name!r}")
    value = getattr(import_module(f"steppe_gym.{_MODULES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
