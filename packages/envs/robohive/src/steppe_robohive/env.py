"""RoboHiveEnv: environments of RoboHive, with cameras."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from steppe.envs import MadeByName, base_arguments
from steppe.errors import ArgumentError
from steppe.registry import AvailableEnvs, env_not_found
from steppe_gym import GymWrapper

from .named_observations import NamedObservations
from .names import env_names, import_robohive

__all__ = ["RoboHiveEnv", "RoboHiveWrapper"]


class RoboHiveWrapper(GymWrapper):
    """Wrap an environment of RoboHive.

    ======================  =========================================================================================
    Key                     Value
    ======================  =========================================================================================
    the names in            ``[k]`` float32, the parts of the library's observation
    ``obs_keys``
    ``("info", name)``      ``[1]`` float32: ``"rwd_dense"``, ``"rwd_sparse"``, ``"solved"``, ``"time"``; 0 at a reset
    ``"pixels"``            ``[cameras, H, W, 3]`` uint8, if the environment has visual keys ``"rgb:camera:HxW:2d"``
    ``"depths"``            ``[cameras, H, W]`` float32, if it has visual keys ``"d:camera:HxW:2d"``
    visual keys with        ``[k]`` float32, the library's features of an image
    another encoder
    ``"action"``            ``[k]`` float32
    ``"reward"``            ``[1]`` float32
    ``"done"``              ``[1]`` bool, with ``"terminated"`` and ``"truncated"``
    ======================  =========================================================================================

    >>> import gymnasium
    >>> import robohive
    >>> from steppe_robohive import RoboHiveWrapper
    >>> env = RoboHiveWrapper(gymnasium.make("FrankaReachFixed-v0"), read_info=False)
    >>> env.rollout(3)["next", "reward"].shape
    torch.Size([3, 1])

    Args:
        env: the environment, made by gym or gymnasium.
        pixels_only: leave out the observation of the library if there are pixels. Infos are kept.
        read_info: add ``"info"``.
        **kwargs: see :class:`steppe_gym.GymWrapper`.
    """

    git_url = "https://github.com/vikashplus/robohive"
    libname = "robohive"
    available_envs = AvailableEnvs(env_names)

    def __init__(self, env: Any, *, pixels_only: bool = False, read_info: bool = True, **kwargs: Any) -> None:
        super().__init__(NamedObservations(env, pixels_only=pixels_only, read_info=read_info), **kwargs)

    @property
    def lib(self) -> Any:
        """The module ``robohive``."""
        return import_robohive()


class RoboHiveEnv(MadeByName, RoboHiveWrapper):
    """Make an environment of RoboHive by its name; see :class:`RoboHiveWrapper` for the data.

    >>> from steppe_robohive import RoboHiveEnv
    >>> env = RoboHiveEnv("FrankaReachFixed-v0")
    >>> env.rollout(3)["next", "info", "solved"].shape
    torch.Size([3, 1])

    Args:
        env_name: a name of ``RoboHiveEnv.available_envs``.
        num_workers: a number above 1 makes a :class:`~steppe.ParallelEnv` of this many environments instead.
        from_pixels: add images of the cameras, 224 x 224.
        from_depths: add depths of the cameras too.
        cameras: names of the cameras. ``None``: all, which takes time for each; see :meth:`get_available_cams`.
        pixels_only: with ``from_pixels``, leave out the observation of the library.
        categorical_action_encoding: discrete values are integers instead of one-hot vectors.
        frame_skip: number of times that each action is taken.
        read_info: see :class:`RoboHiveWrapper`.
        device: device of the data. The index of a CUDA device is the one on which images are rendered.
        **kwargs: for :class:`steppe.envs.EnvBase`; all others go to the environment.

    Raises:
        EnvNotFound: RoboHive has no such environment.
        ArgumentError: an unknown camera, or cameras without ``from_pixels``.
        LibraryMissing: RoboHive has no models yet.
    """

    def __init__(
        self,
        env_name: str,
        *,
        num_workers: int | None = None,
        from_pixels: bool = False,
        from_depths: bool = False,
        cameras: Sequence[str] | None = None,
        pixels_only: bool = True,
        categorical_action_encoding: bool = False,
        frame_skip: int | None = None,
        read_info: bool = True,
        device: Any = None,
        **kwargs: Any,
    ) -> None:
        if env_name not in (names := env_names()):
            raise env_not_found("robohive", env_name, names=names)
        if not from_pixels and (cameras or from_depths):
            raise ArgumentError(f"cameras={cameras} and from_depths={from_depths} need from_pixels=True.")
        base_kwargs = base_arguments(kwargs)
        if from_pixels:
            kwargs["visual_keys"] = _visual_keys(self._cameras(env_name, cameras), depths=from_depths)
            index = str(device).rpartition(":")[2]
            kwargs.setdefault("device_id", int(index) if index.isdigit() else 0)
        super().__init__(
            _gym().make(env_name, **kwargs),
            pixels_only=pixels_only and from_pixels,
            read_info=read_info,
            categorical_action_encoding=categorical_action_encoding,
            frame_skip=frame_skip,
            device=device,
            **base_kwargs,
        )
        self.__dict__["env_name"] = env_name

    @classmethod
    def get_available_cams(cls, env_name: str) -> list[str]:
        """Return the names of the cameras of an environment, which is made for it."""
        env = _gym().make(env_name)
        sim = env.unwrapped.sim
        cameras = [str(sim.model.camera(i).name) for i in range(sim.model.ncam)]
        env.close()
        return cameras

    def _cameras(self, env_name: str, cameras: Sequence[str] | None) -> list[str]:
        known = self.get_available_cams(env_name)
        unknown = sorted(set(cameras or ()) - set(known))
        if unknown or not known:
            raise ArgumentError(f"{env_name!r} has the cameras {known}, found cameras={cameras}.")
        return sorted(known if cameras is None else cameras)


def _visual_keys(cameras: Sequence[str], *, depths: bool) -> list[str]:
    kinds = ("rgb", "d") if depths else ("rgb",)
    return [f"{kind}:{camera}:224x224:2d" for kind in kinds for camera in cameras]


def _gym() -> Any:
    """Return the library with which RoboHive registers its environments, gymnasium or gym."""
    import_robohive()
    from robohive.utils import gym

    return gym
