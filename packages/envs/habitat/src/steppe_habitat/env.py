"""HabitatEnv: tasks of Habitat, which are environments of gym."""

from __future__ import annotations

import functools
import random
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
import torch

from steppe.envs import MadeByName, base_arguments
from steppe.errors import ArgumentError
from steppe.registry import AvailableEnvs, env_not_found
from steppe.versions import library_version, set_gym_backend
from steppe_gym import GymWrapper

from .names import env_names

__all__ = ["HabitatEnv", "HabitatWrapper"]

T = TypeVar("T")


class SeededTask:
    """A task of Habitat that takes seeds at a reset, and tells its time limit from other ends.

    Habitat draws from the global generators of Python and numpy. This class keeps a state of them for each task and
    swaps it in during each call, so that a seed gives the same episodes, whatever else draws from them.

    Args:
        env: the task. Its ``reset`` takes a seed and ignores it; ``seed`` seeds it.
    """

    def __init__(self, env: Any) -> None:
        self.env = env
        self._state = random.getstate(), np.random.get_state()

    def __getattr__(self, name: str) -> Any:
        if name == "env":  # while it is unpickled
            raise AttributeError(name)
        return getattr(self.env, name)

    def reset(self, *, seed: int | None = None, **kwargs: Any) -> tuple[Any, dict[str, Any]]:
        """Begin an episode; the library returns no info."""
        if seed is not None:
            self._call(self.env.seed, seed)
        return self._call(self.env.reset, **kwargs), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Step the task; return five values."""
        observation, reward, done, info = self._call(self.env.step, action)
        truncated = bool(done) and self._time_is_over()
        return observation, float(reward), bool(done) and not truncated, truncated, info

    def _call(self, function: Callable[..., T], *args: Any, **kwargs: Any) -> T:
        others = random.getstate(), np.random.get_state()
        _set_generators(self._state)
        try:
            return function(*args, **kwargs)
        finally:
            self._state = random.getstate(), np.random.get_state()
            _set_generators(others)

    def _time_is_over(self) -> bool:
        # The environment inside RLEnv counts steps and seconds. It has one flag for all ends.
        core = getattr(self.env.unwrapped, "_env", None)
        past, task = getattr(core, "_past_limit", None), getattr(core, "task", None)
        return past is not None and bool(past()) and bool(getattr(task, "is_episode_active", False))

    def render(self, mode: str = "rgb_array", **kwargs: Any) -> Any:
        """Return the observations and metrics as an image."""
        return self.env.render(mode=mode, **kwargs)


def _set_generators(state: tuple[Any, Any]) -> None:
    random.setstate(state[0])
    np.random.set_state(state[1])


class HabitatWrapper(GymWrapper):
    """Wrap a task of Habitat, ``gym.make("HabitatRenderPick-v0")`` or ``habitat.gym.make_gym_from_config(config)``.

    Entries are those of :class:`steppe_gym.GymWrapper`; sensors of a dict have their own names. The limits of steps and
    seconds truncate; other ends terminate.

    >>> import gym
    >>> import habitat.gym
    >>> from steppe_habitat import HabitatWrapper
    >>> env = HabitatWrapper(gym.make("HabitatRenderPick-v0"))
    >>> env.reset()["truncated"], env.reward_spec.shape
    (tensor([False]), torch.Size([1]))

    Args:
        env: the task.
        **kwargs: see :class:`steppe_gym.GymWrapper`.
    """

    git_url = "https://github.com/facebookresearch/habitat-lab"
    libname = "habitat"
    available_envs = AvailableEnvs(env_names)

    def __init__(self, env: Any, **kwargs: Any) -> None:
        with set_gym_backend("gym"):
            super().__init__(SeededTask(env), **kwargs)

    @property
    def lib(self) -> Any:
        """The module ``habitat``."""
        import habitat

        return habitat


class HabitatEnv(MadeByName, HabitatWrapper):
    """Make a task of Habitat by its name; see :class:`HabitatWrapper` for the data.

    >>> from steppe_habitat import HabitatEnv
    >>> HabitatEnv("HabitatRenderPick-v0").rollout(3)["next", "truncated"].flatten().tolist()
    [False, False, False]

    Args:
        env_name: a name of ``HabitatEnv.available_envs``. ``"Habitat-v0"`` needs ``cfg_file_path``.
        num_workers: a number above 1 makes a :class:`~steppe.ParallelEnv` of this many tasks instead.
        device: device of the data, and of the simulation if it is a CUDA device. With ``num_workers``, also a list with
            one for each task, which must be of one type; the data of the batch is on the CPU then.
        from_pixels: render a frame in each step and add it as ``"pixels"``, ``[H, W, 3]`` uint8.
        pixels_only: with ``from_pixels``, leave out the observations of the task.
        categorical_action_encoding: discrete actions are integers instead of one-hot vectors.
        frame_skip: number of times that each action is taken.
        **kwargs: for :class:`steppe.envs.EnvBase`; all others go to ``gym.make``: ``cfg_file_path``,
            ``override_options``.

    Raises:
        EnvNotFound: Habitat has no such task.
    """

    def __new__(cls, *args: Any, device: Any = None, num_workers: int | None = None, **kwargs: Any) -> Any:
        """Make the task, or a batch if there are several workers."""
        if not isinstance(device, list | tuple):
            return super().__new__(cls, *args, device=device, num_workers=num_workers, **kwargs)
        if num_workers != len(device):
            raise ArgumentError(
                f"A list of devices has one for each of num_workers={num_workers} tasks, found {device}."
            )
        from steppe import ParallelEnv

        return ParallelEnv(num_workers, [functools.partial(cls, *args, device=each, **kwargs) for each in device])

    def __init__(
        self,
        env_name: str,
        *,
        num_workers: int | None = None,
        device: torch.device | str | int | None = None,
        from_pixels: bool = False,
        pixels_only: bool = True,
        categorical_action_encoding: bool = False,
        frame_skip: int | None = None,
        **kwargs: Any,
    ) -> None:
        if env_name not in (names := env_names()):
            raise env_not_found("habitat", env_name, names=names)
        import gym

        base_kwargs = base_arguments(kwargs)
        if (version := library_version("gym")) is not None and version >= type(version)("0.24"):
            kwargs["disable_env_checker"] = True  # the checker of gym expects the steps of its version
        place = None if device is None else torch.device(device)
        if place is not None and place.type == "cuda":
            option = f"habitat.simulator.habitat_sim_v0.gpu_device_id={place.index or 0}"
            kwargs["override_options"] = [option, *(kwargs.get("override_options") or ())]
        super().__init__(
            gym.make(env_name, **kwargs),
            categorical_action_encoding=categorical_action_encoding,
            frame_skip=frame_skip,
            from_pixels=from_pixels,
            pixels_only=pixels_only,
            device=device,
            **base_kwargs,
        )
        self.__dict__["env_name"] = env_name
