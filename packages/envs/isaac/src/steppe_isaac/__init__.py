"""Isaac Gym and Isaac Lab for steppe: batches on a GPU, which reset themselves."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .isaac_gym import IsaacGymEnv, IsaacGymWrapper
    from .isaac_lab import IsaacLabEnv, IsaacLabWrapper

__all__ = ["IsaacGymEnv", "IsaacGymWrapper", "IsaacLabEnv", "IsaacLabWrapper"]


def __getattr__(name: str) -> object:
    # steppe imports this package to read its plugin modules, so it must load without torch.
    if name not in __all__:
        raise AttributeError(f"module 'steppe_isaac' has no attribute {name!r}")
    from . import isaac_gym, isaac_lab

    return getattr(isaac_gym if "Gym" in name else isaac_lab, name)


def __dir__() -> list[str]:
    return sorted(__all__)
