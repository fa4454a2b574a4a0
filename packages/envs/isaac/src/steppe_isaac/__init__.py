"""Isaac Gym and Isaac Lab for steppe: batches on a GPU, which reset themselves."""

from __future__ import annotations

from typing import TYPE_CHECKING

from steppe.imports import lazy_exports

if TYPE_CHECKING:
    from .isaac_gym import IsaacGymEnv as IsaacGymEnv
    from .isaac_gym import IsaacGymWrapper as IsaacGymWrapper
    from .isaac_lab import IsaacLabEnv as IsaacLabEnv
    from .isaac_lab import IsaacLabWrapper as IsaacLabWrapper
else:
    __getattr__, __dir__, __all__ = lazy_exports(
        __name__, {"isaac_gym": ["IsaacGymEnv", "IsaacGymWrapper"], "isaac_lab": ["IsaacLabEnv", "IsaacLabWrapper"]}
    )
