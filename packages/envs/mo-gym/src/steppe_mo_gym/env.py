"""MO-Gymnasium's environments: gymnasium's, with a vector of rewards."""

from __future__ import annotations

from typing import Any

from steppe.registry import AvailableEnvs
from steppe_gym import GymEnv, GymWrapper

from .names import available_names

__all__ = ["MOGymEnv", "MOGymWrapper"]


class MOGymWrapper(GymWrapper):
    """An environment object of MO-Gymnasium, single or vector, as a steppe environment.

    ``"reward"`` is ``[k]`` float32, one entry for each of the environment's objectives, as its ``reward_space`` says.
    Everything else, arguments included, is :class:`steppe_gym.GymWrapper`'s.

    Args:
        env: the environment.
        **kwargs: see :class:`steppe_gym.GymWrapper`.
    """

    available_envs = AvailableEnvs(available_names)
    libname = "mo-gymnasium"
    git_url = "https://github.com/Farama-Foundation/MO-Gymnasium"


class MOGymEnv(GymEnv):
    """Make an environment of MO-Gymnasium by its name, and wrap it.

    >>> MOGymEnv("deep-sea-treasure-v0").rollout(3)["next", "reward"].shape
    torch.Size([3, 2])

    MO-Gymnasium is built on gymnasium, which is used whatever ``set_gym_backend`` says.

    Args:
        env_name: the id, such as ``"mo-halfcheetah-v5"``.
        num_envs: 0 makes one environment; more makes MO-Gymnasium's vector environment, a batch ``[num_envs]``.
        **kwargs: see :class:`steppe_gym.GymEnv`.

    Raises:
        EnvNotFound: MO-Gymnasium has no such environment.
        LibraryMissing: the environment needs a package that is not installed.
    """

    available_envs = AvailableEnvs(available_names)
    libname = "mo-gymnasium"
    git_url = "https://github.com/Farama-Foundation/MO-Gymnasium"
    namespace = "mo-gym"

    def __init__(self, env_name: str, num_envs: int | None = 0, **kwargs: Any) -> None:
        import mo_gymnasium  # noqa: F401 - registers the environments

        super().__init__(env_name, num_envs, **{**kwargs, "backend": "gymnasium"})

    @property
    def lib(self) -> Any:
        """MO-Gymnasium."""
        import mo_gymnasium

        return mo_gymnasium

    @classmethod
    def _list_names(cls) -> list[str]:
        return available_names()

    @classmethod
    def _vector_classes(cls, adapter: Any) -> dict[str, Any]:
        from mo_gymnasium.wrappers import vector

        return {"sync": vector.MOSyncVectorEnv, "async": vector.MOAsyncVectorEnv}
