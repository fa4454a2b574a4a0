"""DMControlEnv: an environment of dm_control by its name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from steppe.envs import MadeByName, base_arguments

from .making import make
from .wrapper import DMControlWrapper

__all__ = ["DMControlEnv"]


class DMControlEnv(MadeByName, DMControlWrapper):
    """Make an environment of dm_control by its name, and wrap it.

    >>> env = DMControlEnv("cheetah", "run", frame_skip=4)
    >>> env.rollout(3)["position"].shape
    torch.Size([3, 8])

    Args:
        env_name: the domain (``"cheetah"``, ``"manipulation"``, ``"locomotion"``), or domain and task in one
            (``"cheetah-run"``, ``"manipulation/reach_site_features"``).
        task_name: the task, where ``env_name`` is the domain.
        from_pixels, pixels_only, camera_id, render_kwargs, categorical_action_encoding, frame_skip, device: see
            :class:`DMControlWrapper`.
        task_kwargs: for the task: ``random`` (a seed or a numpy ``RandomState``), ``time_limit`` in seconds, ...
        environment_kwargs: of the suite, for its ``Environment``: ``control_timestep``, ``flat_observation``, ...
        visualize_reward: of the suite: colour the scene by the reward.
        num_workers: more than 1 makes a :class:`~steppe.batched.ParallelEnv` of this many such environments instead.
        **kwargs: for the task, like ``task_kwargs``; those of :class:`steppe.envs.EnvBase` go there.

    Raises:
        EnvNotFound: the library has no such environment.
        NotSupported: frames where MuJoCo cannot render.
        TypeError: manipulation and locomotion take ``random`` alone.
    """

    def __init__(
        self,
        env_name: str,
        task_name: str | None = None,
        *,
        from_pixels: bool = False,
        pixels_only: bool = False,
        camera_id: int | str = 0,
        render_kwargs: Mapping[str, Any] | None = None,
        categorical_action_encoding: bool = False,
        frame_skip: int | None = None,
        device: Any = None,
        task_kwargs: Mapping[str, Any] | None = None,
        environment_kwargs: Mapping[str, Any] | None = None,
        visualize_reward: bool = False,
        num_workers: int | None = None,
        **kwargs: Any,
    ) -> None:
        name = env_name if task_name is None else f"{env_name}/{task_name}"
        own = base_arguments(kwargs)
        env = make(
            env_name,
            task_name,
            task_kwargs={**(task_kwargs or {}), **kwargs},
            renders=from_pixels,
            environment_kwargs=None if environment_kwargs is None else dict(environment_kwargs),
            visualize_reward=visualize_reward,
        )
        super().__init__(
            env,
            from_pixels=from_pixels,
            pixels_only=pixels_only,
            camera_id=camera_id,
            render_kwargs=render_kwargs,
            categorical_action_encoding=categorical_action_encoding,
            frame_skip=frame_skip,
            device=device,
            **own,
        )
        self.__dict__["name"] = name

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.__dict__.get('name', '')})"
