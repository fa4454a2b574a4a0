"""Environments of gym (0.13 or newer) and gymnasium (0.26 or newer) for steppe."""

from __future__ import annotations

from typing import TYPE_CHECKING

import steppe_gym_like
from steppe.imports import lazy_exports
from steppe.versions import gym_backend as gym_backend
from steppe.versions import set_gym_backend as set_gym_backend

if TYPE_CHECKING:
    from .actions import action_decoder as action_decoder
    from .atari import AtariScreens as AtariScreens
    from .atari import atari_preprocessing as atari_preprocessing
    from .env import GymEnv as GymEnv
    from .gym_export import as_gym as as_gym
    from .gym_export import register_gym as register_gym
    from .pixels import are_frames as are_frames
    from .spaces import register_gym_spec_conversion as register_gym_spec_conversion
    from .spaces import space_to_spec as space_to_spec
    from .to_space import spec_to_space as spec_to_space
    from .values import SpaceReader as SpaceReader
    from .vector_env import BatchVectorEnv as BatchVectorEnv
    from .vector_env import as_vector_env as as_vector_env
    from .vector_env import make_vec as make_vec
    from .vector_env import register_vec as register_vec
    from .vector_rows import VectorRows as VectorRows
    from .wrapper import GymWrapper as GymWrapper
else:
    __getattr__, __dir__, __all__ = lazy_exports(
        __name__,
        {
            "actions": ["action_decoder"],
            "atari": ["AtariScreens", "atari_preprocessing"],
            "env": ["GymEnv"],
            "gym_export": ["as_gym", "register_gym"],
            "pixels": ["are_frames"],
            "spaces": ["register_gym_spec_conversion", "space_to_spec"],
            "to_space": ["spec_to_space"],
            "values": ["SpaceReader"],
            "vector_env": ["BatchVectorEnv", "as_vector_env", "make_vec", "register_vec"],
            "vector_rows": ["VectorRows"],
            "wrapper": ["GymWrapper"],
        },
    )
    __all__ += ["gym_backend", "set_gym_backend"]

steppe_gym_like.keep_llvm_apart()
