"""DMControlWrapper: an environment object of dm_control."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from steppe.envs import GymLikeEnv, write_row
from steppe.errors import NotSupported, SpecError
from steppe.registry import AvailableEnvs
from steppe.specs import Binary, Bounded, Composite, Spec, Unbounded

from .names import available_tasks
from .random_state import find_random_state
from .spaces import array_to_spec

__all__ = ["DMControlWrapper"]

_PIXELS = "pixels"
# Keys at the root of data that are no observations.
_TAKEN = {"action", "reward", "done", "terminated", "truncated", "next"}


class DMControlWrapper(GymLikeEnv):
    """An environment of dm_control, or any single-player ``dm_env.Environment``, as a steppe environment.

    ====================  =========================================================================================
    Key                   What
    ====================  =========================================================================================
    the library's names   the observations, each under its own name (``"position"``, ``"velocity"``), in the library's
                          dtype (float64); a number has the shape ``[1]``. A single array is ``"observation"``.
    ``"pixels"``          ``[height, width, 3]`` uint8, with ``from_pixels``
    ``"action"``          ``[n]`` in the library's dtype (float64), within its bounds
    ``"reward"``          ``[1]`` float32
    ``"done"``            ``[1]`` bool, with ``"terminated"`` (the last discount is 0) and ``"truncated"`` (it is not:
                          the time is up)
    ====================  =========================================================================================

    The seed given to ``set_seed`` seeds the random state of the task at the next reset, so that data equals that of
    the library made with ``random=seed``; resets after that go on with the same state. What the library draws while
    it *builds* an environment (the stiffness of ``lqr``) is chosen by ``random=`` of :class:`DMControlEnv`.

    A step after the last one of an episode begins a new episode in the library, whatever the action: its reward here
    is 0. Rollouts, batches and collectors reset instead.

    Attributes that this class lacks (``physics``, ``task``) are looked up on the environment.

    Args:
        env: the environment.
        from_pixels: render a frame at each step and add it as ``"pixels"``.
        pixels_only: leave the library's own observations out where there are pixels.
        camera_id: number or name of the camera; -1 is the free one.
        render_kwargs: for ``physics.render``: ``height``, ``width``, ``depth``, ``scene_option``, ...
        categorical_action_encoding: discrete values as integers instead of one-hot rows.
        frame_skip: how many times an action is repeated; rewards are summed, and the end of the episode stops it. A
            frame is rendered once.
        device: where data comes out and goes in. The library computes on the CPU whatever is said here.
        **kwargs: for :class:`steppe.envs.EnvBase`: ``allow_done_after_reset``, ...

    Raises:
        NotSupported: the environment has several players, or it renders no frames and ``from_pixels`` is set; a batch
            size.
        SpecError: an observation has the name of another entry of data.
    """

    git_url = "https://github.com/google-deepmind/dm_control"
    libname = "dm_control"
    available_envs = AvailableEnvs(lambda: list(available_tasks().items()))
    """``[(domain, [task, ...]), ...]``; empty where the library is missing."""

    def __init__(
        self,
        env: Any,
        *,
        from_pixels: bool = False,
        pixels_only: bool = False,
        camera_id: int | str = 0,
        render_kwargs: Mapping[str, Any] | None = None,
        categorical_action_encoding: bool = False,
        frame_skip: int | None = None,
        device: Any = None,
        **kwargs: Any,
    ) -> None:
        if not hasattr(env, "observation_spec") or not hasattr(env, "action_spec"):
            raise TypeError(
                f"DMControlWrapper wraps an environment of dm_control, which has specs, not {env!r}. "
                "DMControlEnv('cheetah', 'run') makes one by its name."
            )
        if kwargs.get("batch_size"):
            raise NotSupported("An environment of dm_control is no batch: ParallelEnv(n, 'dm:cheetah-run') makes one.")
        super().__init__(env, frame_skip=frame_skip, device=device, **kwargs)
        state = self.__dict__
        state["from_pixels"] = from_pixels
        state["pixels_only"] = pixels_only
        state["categorical_action_encoding"] = categorical_action_encoding
        state["render_kwargs"] = {"camera_id": camera_id, **(render_kwargs or {})}
        self._make_library_specs()

    # -- specs ----------------------------------------------------------------------------------------------------

    def _make_library_specs(self) -> None:
        found = self._env.observation_spec()
        named = isinstance(found, Mapping)
        arrays = dict(found) if named else {"observation": found}
        entries: dict[str, Spec] = {}
        if not (self.from_pixels and self.pixels_only):
            entries = {name: array_to_spec(array, device=self.device) for name, array in arrays.items()}
        state = self.__dict__
        state["_named"] = named
        state["_entries"] = [(name, tuple(arrays[name].shape)) for name in entries]
        if self.from_pixels:
            entries[_PIXELS] = self._frame_spec()
        taken = sorted(_TAKEN & set(entries))
        if taken:
            raise SpecError(
                f"{self!r} observes entries named {taken}, which are keys of other things in data. Rename them in the "
                "task, or in a wrapper around the environment."
            )
        action = array_to_spec(
            self._env.action_spec(), categorical_action_encoding=self.categorical_action_encoding, device=self.device
        )
        flag = Binary(shape=(1,), dtype=torch.bool, device=self.device)
        reward = torch.Size(getattr(self._env.reward_spec(), "shape", ()) or (1,))
        state["_one_reward"] = reward == (1,)
        self.observation_spec = Composite(entries, device=self.device)
        self.action_spec = Composite({"action": action}, device=self.device)
        self.reward_spec = Unbounded(shape=reward, dtype=torch.float32, device=self.device)
        self.done_spec = Composite(
            {"done": flag, "terminated": flag.clone(), "truncated": flag.clone()}, device=self.device
        )

    def _frame_spec(self) -> Spec:
        try:
            frame = self.render()
        except AttributeError:
            raise NotSupported(f"{self!r} has no physics that renders frames.") from None
        except Exception as error:
            if type(error).__module__.partition(".")[0] != "mujoco":
                raise
            raise NotSupported(
                f"MuJoCo cannot render here ({error}). It chooses how when it is imported: set MUJOCO_GL=egl (a GPU "
                "or Mesa), or MUJOCO_GL=osmesa, before the program starts."
            ) from error
        if frame.dtype == np.uint8:
            return Bounded(0, 255, shape=frame.shape, dtype=torch.uint8, device=self.device)
        dtype = torch.from_numpy(np.empty(0, frame.dtype)).dtype
        return Unbounded(shape=frame.shape, dtype=dtype, device=self.device)

    # -- the array path -------------------------------------------------------------------------------------------

    def reset_into(self, out: dict[Any, Any], seed: int | None, env_info: dict[str, Any] | None) -> None:
        """Begin an episode, with the random state seeded where there is a seed."""
        self._write(self._env_reset(seed, env_info).observation, out)

    def step_into(self, action: Any, out: dict[Any, Any]) -> tuple[bool, bool]:
        """Act, ``frame_skip`` times."""
        timestep = self._env.step(action)
        step_type, reward, discount, observation = timestep
        if self.frame_skip > 1:
            total, step = reward or 0, 1
            while step < self.frame_skip and not step_type.last():
                step_type, reward, discount, observation = self._env.step(action)
                total = total + (reward or 0)
                step += 1
            reward = total
        if self._one_reward:
            out["reward"][0] = 0.0 if reward is None else reward
        elif reward is None:
            out["reward"][...] = 0.0
        else:
            write_row(out, "reward", reward)
        self._write(observation, out)
        if step_type.last():
            return discount == 0, discount != 0
        return False, False

    def _write(self, observation: Any, out: Any) -> None:
        """Copy the library's observations into their places, and a frame where one is wanted."""
        if not self._named:
            observation = {"observation": observation}
        try:
            for name, shape in self._entries:
                value = observation[name]
                if type(value) is np.ndarray and value.shape == shape:
                    out[name][...] = value
                elif shape:
                    write_row(out, name, value)
                else:
                    out[name][0] = value
        except KeyError:
            missing = [name for name, _ in self._entries if name not in observation]
            raise SpecError(
                f"The library returned no value for {missing}, which the observation spec of {self!r} has."
            ) from None
        if self.from_pixels:
            write_row(out, _PIXELS, self.render())

    def rows_problem(self) -> str | None:
        if self.info_dict_reader:
            return "an info reader was set."
        return super().rows_problem()

    # -- the tensordict path --------------------------------------------------------------------------------------

    def read_obs(self, observations: Any) -> dict[Any, torch.Tensor]:
        """Turn the library's observations into ``{name: tensor}``, with a frame where one is wanted."""
        out = {}
        for name in [*(name for name, _ in self._entries), *([_PIXELS] if self.from_pixels else [])]:
            spec = self.full_observation_spec[name]
            out[name] = torch.empty(spec.shape, dtype=spec.dtype, device="cpu").numpy()
        self._write(observations, out)
        return {name: torch.from_numpy(array) for name, array in out.items()}

    def read_reward(self, reward: Any) -> torch.Tensor:
        """Turn the library's reward into a tensor; that of a step that began an episode is 0."""
        return super().read_reward(np.zeros(self.full_reward_spec["reward"].shape) if reward is None else reward)

    def _output_transform(self, step_outputs: Any) -> tuple[Any, ...]:
        step_type, reward, discount, observation = step_outputs
        last = bool(step_type.last())
        terminated, truncated = last and discount == 0, last and discount != 0
        info = {"discount": 1.0 if discount is None else discount}
        return observation, reward, terminated, truncated, last, info

    def _reset_output_transform(self, reset_outputs: Any) -> tuple[Any, Any]:
        return reset_outputs.observation, {"discount": 1.0}

    def _env_reset(self, seed: int | None, env_info: dict[str, Any] | None, **kwargs: Any) -> Any:
        if kwargs:
            raise TypeError(f"reset does not take {sorted(kwargs)}: that of dm_control takes nothing.")
        if seed is not None:
            state = find_random_state(self._env)
            assert state is not None  # set_seed has found it
            state.seed(seed)
        return self._env.reset()

    def _set_seed(self, seed: int | None) -> None:
        if find_random_state(self._env) is None:
            if seed is None:
                return
            raise NotSupported(
                f"{self!r} has no numpy RandomState that a seed could go to (task.random, or env.random_state): give "
                "the seed to what makes the environment."
            )
        super()._set_seed(None if seed is None else seed % 2**32)  # numpy takes 32 bits

    # -- the library's own ----------------------------------------------------------------------------------------

    @property
    def lib(self) -> Any:
        """The module ``dm_control``."""
        import dm_control

        return dm_control

    def render(self, **kwargs: Any) -> np.ndarray[Any, Any]:
        """Render a frame.

        Args:
            **kwargs: for ``physics.render``, over ``camera_id`` and ``render_kwargs`` of the constructor.

        Returns:
            ``[height, width, 3]`` uint8, unless depth or segmentation is asked for.
        """
        frame: np.ndarray[Any, Any] = self._env.physics.render(**{**self.render_kwargs, **kwargs})
        return frame

    def __repr__(self) -> str:
        task = getattr(self.__dict__.get("_env"), "task", None)
        return f"{type(self).__name__}({type(task).__name__})"
