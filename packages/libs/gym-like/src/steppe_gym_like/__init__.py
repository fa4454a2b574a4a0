"""GymLikeEnv and readers of info dicts, for wrappers of gym-like libraries.

The names are importable from ``steppe`` and ``steppe.envs`` too.
"""

from __future__ import annotations

from steppe_gym_like.gym_like import GymLikeEnv
from steppe_gym_like.info_readers import BaseInfoDictReader, default_info_dict_reader

__all__ = ["BaseInfoDictReader", "GymLikeEnv", "default_info_dict_reader"]
