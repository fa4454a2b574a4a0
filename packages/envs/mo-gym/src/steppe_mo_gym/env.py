"""MOGymEnv: environments of MO-Gymnasium, which return a vector of rewards."""

from __future__ import annotations

from typing import Any

from steppe.registry import AvailableEnvs
from steppe_gym import GymEnv, GymWrapper

from .names import available_names

__all__ = ["MOGymEnv", "MOGymWrapper"]


class MOGymWrapper(GymWrapper):
    """Wrap an environment object of MO-Gymnasium, single or vector.

    ``"reward"`` is ``[k]`` float32, one number for each objective, with the shape of the environment's
    ``reward_space``. All other entries and the arguments are those of :class:`steppe_gym.GymWrapper`.

    >>> import mo_gymnasium
    >>> from steppe_mo_gym import MOGymWrapper
    >>> env = MOGymWrapper(mo_gymnasium.make("resource-gathering-v0"))
    >>> env.reward_spec.shape, env.rollout(3)["next", "reward"].shape
    (torch.Size([3]), torch.Size([3, 3]))

    Args:
        env: the environment.
        **kwargs: see :class:`steppe_gym.GymWrapper`.
    """

    available_envs = AvailableEnvs(available_names)
    libname = "mo-gymnasium"
    git_url = "https://github.com/Farama-Foundation/MO-Gymnasium"


class MOGymEnv(GymEnv):
    """Make an environment of MO-Gymnasium by its name.

    >>> from steppe_mo_gym import MOGymEnv
    >>> MOGymEnv("deep-sea-treasure-v0").rollout(3)["next", "reward"].shape
    torch.Size([3, 2])

    MO-Gymnasium is built on gymnasium, so the choice of ``set_gym_backend`` has no effect here.

    Args:
        env_name: the id, such as ``"mo-halfcheetah-v5"``.
        num_envs: 0 makes one environment. A number above 0 makes MO-Gymnasium's vector environment, a batch
            ``[num_envs]``.
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
        """The module ``mo_gymnasium``."""
        import mo_gymnasium

        return mo_gymnasium

    @classmethod
    def _list_names(cls) -> list[str]:
        return available_names()

    @classmethod
    def _vector_classes(cls, adapter: object) -> dict[str, Any]:
        from mo_gymnasium.wrappers import vector

        # MO-Gymnasium before 1.3.2 steps batches in one process only.
        names = {"sync": "MOSyncVectorEnv", "async": "MOAsyncVectorEnv"}
        return {mode: getattr(vector, name) for mode, name in names.items() if hasattr(vector, name)}
