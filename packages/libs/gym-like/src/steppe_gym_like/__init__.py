"""GymLikeEnv and readers of info dicts, for wrappers of gym-like libraries.

The names are importable from ``steppe`` and ``steppe.envs`` too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from steppe.imports import lazy_exports

if TYPE_CHECKING:
    from .gym_like import GymLikeEnv as GymLikeEnv
    from .info_readers import BaseInfoDictReader as BaseInfoDictReader
    from .info_readers import default_info_dict_reader as default_info_dict_reader
    from .own_llvm import keep_llvm_apart as keep_llvm_apart
else:
    __getattr__, __dir__, __all__ = lazy_exports(
        __name__,
        {
            "gym_like": ["GymLikeEnv"],
            "info_readers": ["BaseInfoDictReader", "default_info_dict_reader"],
            "own_llvm": ["keep_llvm_apart"],
        },
    )
