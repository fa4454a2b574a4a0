"""DMControlEnv: make environments of dm_control by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from steppe.envs import MadeByName, base_arguments
from steppe.errors import NotSupported

from .making import make
from .wrapper import DMControlWrapper

if TYPE_CHECKING:
    import torch

__all__ = ["DMControlEnv"]


class DMControlEnv(MadeByName, DMControlWrapper):
    """Make an environment of dm_control by its name.

    >>> from steppe_dm_control import DMControlEnv
    >>> env = DMControlEnv("cheetah", "run", frame_skip=4)
    >>> env.rollout(3)["position"].shape
    torch.Size([3, 8])

    Args:
        env_name: the domain (``"cheetah"``, ``"manipulation"``, ``"locomotion"``), or domain and
            task together (``"cheetah-run"``, ``"manipulation/reach_site_features"``).
        task_name: the task, if ``env_name`` is the domain.
        from_pixels, pixels_only, camera_id, render_kwargs, categorical_action_encoding, frame_skip, device: see
            :class:`DMControlWrapper`.
        task_kwargs: arguments of the task: ``random`` (a seed or a numpy ``RandomState``), ``time_limit`` in seconds,
            ...
        environment_kwargs: arguments of the suite's ``Environment``: ``control_timestep``, ``flat_observation``, ...
        visualize_reward: color the scene by the reward. Only for the suite.
        render_mode: ``"rgb_array"`` if ``render`` will be called: without a display, MuJoCo then renders through EGL.
        num_workers: a number above 1 makes a :class:`~steppe.batched.ParallelEnv` of this many environments instead.
        **kwargs: arguments of the task, like ``task_kwargs``, and of :class:`steppe.envs.EnvBase`.

    Raises:
        EnvNotFound: the library has no such environment.
        NotSupported: ``from_pixels=True``, and MuJoCo cannot render on this machine.
        TypeError: an argument other than ``random`` for manipulation or locomotion.
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
        device: torch.device | str | int | None = None,
        task_kwargs: Mapping[str, Any] | None = None,
        environment_kwargs: Mapping[str, Any] | None = None,
        visualize_reward: bool = False,
        render_mode: str | None = None,
        num_workers: int | None = None,
        **kwargs: Any,
    ) -> None:
        if render_mode not in (None, "rgb_array"):
            raise NotSupported(f"render_mode must be 'rgb_array' or None, found {render_mode!r}.")
        name = env_name if task_name is None else f"{env_name}/{task_name}"
        base_kwargs = base_arguments(kwargs)
        env = make(
            env_name,
            task_name,
            task_kwargs={**(task_kwargs or {}), **kwargs},
            renders=from_pixels or render_mode is not None,
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
            **base_kwargs,
        )
        self.__dict__["name"] = name

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.__dict__.get('name', '')})"
