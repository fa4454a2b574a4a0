"""IsaacGymEnv: tasks of IsaacGymEnvs, which reset ended rows in the step that follows."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from tensordict import TensorDictBase

from steppe.envs import base_arguments
from steppe.errors import ArgumentError, SpecError
from steppe.registry import AvailableEnvs, env_not_found
from steppe.specs import Binary

from .libraries import import_isaacgymenvs
from .self_resetting import SelfResettingBatch, Values

__all__ = ["IsaacGymEnv", "IsaacGymWrapper", "gym_tasks"]


def gym_tasks() -> list[str]:
    """Return the names of all tasks of IsaacGymEnvs, sorted."""
    import_isaacgymenvs()
    from isaacgymenvs.tasks import isaacgym_task_map

    return sorted(isaacgym_task_map)


class IsaacGymWrapper(SelfResettingBatch):
    """Wrap a task of IsaacGymEnvs, ``isaacgymenvs.make(...)``, as a batch.

    ====================  ===========================================================================================
    Key                   Value, for n environments, on the device of the task
    ====================  ===========================================================================================
    ``"obs"``             ``[n, k]`` float32
    ``"states"``          ``[n, k]`` float32, of tasks with privileged observations for a critic
    ``"valid"``           ``[n, 1]`` bool: in ``next``, whether the step is a transition
    ``"action"``          ``[n, k]`` float32, bounded by -1 and 1
    ``"reward"``          ``[n, 1]`` float32
    ``"done"``            ``[n, 1]`` bool, with ``"truncated"`` (``time_outs`` of the library) and ``"terminated"``
    ``"pixels"``          ``[n, H, W, 3]`` uint8, the same image of all environments in each row, with ``from_pixels``
    ====================  ===========================================================================================

    Isaac Gym resets an ended row in the step after its last one. That step ignores the action of the row and returns
    the first observation of the next episode. It is no transition: ``("next", "valid")`` is False there, its reward is
    0 and it is not done. Last observations are true ones. A reset of some rows in the middle of an episode takes effect
    in the next step in the same way. A reset of all rows takes one step of the simulation, because ``reset()`` of the
    library returns what its buffers contain.

    >>> import isaacgym  # before torch
    >>> import isaacgymenvs
    >>> from steppe_isaac import IsaacGymWrapper
    >>> task = isaacgymenvs.make(seed=0, task="Cartpole", num_envs=4, sim_device="cpu", rl_device="cpu", headless=True)
    >>> IsaacGymWrapper(task).rollout(3, break_when_any_done=False)["obs"].shape
    torch.Size([4, 3, 4])

    Args:
        env: the task.
        from_pixels: add the image that ``env.render("rgb_array")`` returns.
        device: device of the data. ``None``: the device on which the task returns its tensors.
        **kwargs: for :class:`steppe.envs.EnvBase`.

    Attributes:
        task: name of the task.
    """

    git_url = "https://github.com/isaac-sim/IsaacGymEnvs"
    libname = "isaacgym"
    library = "Isaac Gym"
    available_envs = AvailableEnvs(gym_tasks)

    def __init__(
        self,
        env: Any,
        *,
        from_pixels: bool = False,
        device: torch.device | str | int | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(
            env,
            n=int(env.num_envs),
            library_device=torch.device(env.rl_device),
            action_space=env.action_space,
            device=device,
            **kwargs,
        )
        state = self.__dict__
        state["from_pixels"] = from_pixels
        state["task"] = getattr(env, "__name__", type(env).__name__)
        #: Rows that the library resets in its next step.
        state["_pending"] = torch.ones(self.batch_size, dtype=torch.bool, device=self._library_device)
        state["_last"] = {}
        self.declare_observations(self.begin(None))
        self.observation_spec["valid"] = Binary(shape=(*self.batch_size, 1), dtype=torch.bool, device=self.device)

    @property
    def lib(self) -> Any:
        """The module ``isaacgym``."""
        import isaacgym

        return isaacgym

    def _advance(self, action: torch.Tensor) -> tuple[Values, torch.Tensor, torch.Tensor, torch.Tensor]:
        """Step the task.

        Returns observations, rewards ``[n]``, and which rows have ended or timed out, ``[n]`` bool.
        """
        observation, reward, over, extras = self._random.call(self._env.step, action)
        values = self.read(observation if isinstance(observation, dict) else {"obs": observation})
        if self.from_pixels:
            values["pixels"] = self._image()
        over = over.to(torch.bool)
        time_outs = extras.get("time_outs") if isinstance(extras, dict) else None
        timed_out = torch.zeros_like(over) if time_outs is None else time_outs.to(over.device).to(torch.bool)
        self.__dict__["_last"] = values
        # The library changes its buffer of ended rows in place.
        self.__dict__["_pending"] = over.clone()
        return dict(values), reward, over, timed_out

    def _image(self) -> torch.Tensor:
        frame = self._env.render(mode="rgb_array")
        if frame is None:
            raise SpecError(
                "The task renders no image. Make it with virtual_screen_capture=True, headless=False and "
                "force_render=True, which needs pyvirtualdisplay."
            )
        image = torch.from_numpy(np.ascontiguousarray(np.asarray(frame)[..., :3])).to(self._library_device)
        return image.expand(self.batch_size[0], *image.shape).clone()

    def begin(self, mask: torch.Tensor | None) -> Values:
        """Reset all rows with a step of the simulation, or mark rows, which the next step resets."""
        if mask is None or (not self._last):
            self._env.reset_buf.fill_(1)
            values = self._advance(self._env.zero_actions())[0]
        else:
            self._env.reset_buf[mask.to(self._env.reset_buf.device)] = 1
            self._pending.logical_or_(mask)
            values = {key: value.clone() for key, value in self._last.items()}
        values["valid"] = torch.ones((*self.batch_size, 1), dtype=torch.bool, device=self._library_device)
        return values

    def _step(self, tensordict: TensorDictBase) -> TensorDictBase:
        action = self.action_of(tensordict)
        valid = ~self._pending
        values, reward, over, timed_out = self._advance(action)
        ended = over & valid
        values["reward"] = torch.where(valid, reward, 0).to(torch.float32).unsqueeze(-1)
        values["valid"] = valid.unsqueeze(-1)
        return self.data_of(values, terminated=ended & ~timed_out, truncated=ended & timed_out)

    def render(self, mode: str = "rgb_array") -> Any:
        """Return the image of the viewer, ``[H, W, 3]`` uint8; see ``from_pixels`` for what it needs."""
        return self._env.render(mode=mode)


class IsaacGymEnv(IsaacGymWrapper):
    """Make a task of IsaacGymEnvs by its name; see :class:`IsaacGymWrapper` for the data.

    Isaac Gym must be imported before torch: write ``import isaacgym`` in the first line of the program. It has one
    simulation in a process. For more, use ``ParallelEnv(..., mp_start_method="fork")``.

    >>> import isaacgym  # before torch
    >>> from steppe_isaac import IsaacGymEnv
    >>> env = IsaacGymEnv("Cartpole", num_envs=8, device="cpu")
    >>> env.batch_size, env.action_spec.shape
    (torch.Size([8]), torch.Size([8, 1]))

    Args:
        task: a name of ``IsaacGymEnv.available_envs``.
        env: TorchRL's other name of ``task``.
        num_envs: number of environments.
        device: device of the simulation and of the data.
        seed: seed of the task; see also :meth:`set_seed`.
        headless: without a window.
        from_pixels: see :class:`IsaacGymWrapper`.
        **kwargs: for :class:`steppe.envs.EnvBase`; all others go to ``isaacgymenvs.make``: ``graphics_device_id``,
            ``virtual_screen_capture``, ``force_render``, ``cfg``, ...

    Raises:
        EnvNotFound: there is no such task.
        NotSupported: torch was imported before Isaac Gym.
    """

    def __init__(
        self,
        task: str | None = None,
        *,
        env: str | None = None,
        num_envs: int,
        device: torch.device | str | int = "cuda:0",
        seed: int | None = None,
        headless: bool = True,
        from_pixels: bool = False,
        **kwargs: Any,
    ) -> None:
        if (task is None) == (env is None):
            raise TypeError(f"Pass the name of a task as task, found task={task!r} and env={env!r}.")
        name = env if task is None else task
        if isinstance(num_envs, bool) or not isinstance(num_envs, int) or num_envs < 1:
            raise ArgumentError(f"num_envs must be an integer >= 1, found {num_envs!r}.")
        if name not in (names := gym_tasks()):
            raise env_not_found("isaacgym", str(name), names=names)
        base_kwargs = base_arguments(kwargs)
        if isinstance(device, int):
            device = f"cuda:{device}"
        made = import_isaacgymenvs().make(
            seed=seed,
            task=name,
            num_envs=num_envs,
            sim_device=str(device),
            rl_device=str(device),
            headless=headless,
            **kwargs,
        )
        super().__init__(made, from_pixels=from_pixels, **base_kwargs)
        self.__dict__["task"] = name
        if seed is not None:
            self.set_seed(seed)

    def __repr__(self) -> str:
        return f"IsaacGymEnv({self.__dict__.get('task')!r}, num_envs={self.batch_size[0]})"
