"""DMControlWrapper: wrap an environment object of dm_control."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from steppe.envs import as_numbers, write_row
from steppe.errors import NotSupported, SpecError
from steppe.registry import AvailableEnvs
from steppe.specs import Binary, Bounded, Composite, Spec, Unbounded
from steppe_gym_like import GymLikeEnv

from .names import available_tasks
from .random_state import find_random_state
from .rendering import prepare_rendering
from .spaces import array_to_spec

__all__ = ["DMControlWrapper"]

_PIXELS = "pixels"
# Root keys that are not observations.
_RESERVED = {"action", "reward", "done", "terminated", "truncated", "next"}


class DMControlWrapper(GymLikeEnv):
    """Wrap an environment of dm_control, or any single-player ``dm_env.Environment``.

    ====================  =========================================================================================
    Key                   Value
    ====================  =========================================================================================
    names of the library  the observations, each under its own name (``"position"``, ``"velocity"``), in the library's
                          dtype (float64); scalars have the shape ``[1]``. A single array is ``"observation"``.
    ``"pixels"``          ``[height, width, 3]`` uint8, with ``from_pixels``
    ``"action"``          ``[n]`` in the library's dtype (float64), within its bounds
    ``"reward"``          ``[1]`` float32
    ``"done"``            ``[1]`` bool, with ``"terminated"`` (the last discount is 0) and ``"truncated"`` (the last
                          discount is not 0, as at a time limit)
    ====================  =========================================================================================

    The next reset applies the seed of ``set_seed`` to the random state of the task. The data then equals that of an
    environment made with ``random=seed``. Later resets continue with the same state. Values that the library draws when
    it makes an environment (the stiffness of ``lqr``) depend on ``random=`` of :class:`DMControlEnv`.

    In dm_control, a step after the end of an episode starts a new episode and ignores the action. Its reward is 0.
    Rollouts, batches and collectors reset before that.

    Attributes that this class lacks (``physics``, ``task``) are looked up on the environment.

    >>> from dm_control import suite
    >>> from steppe_dm_control import DMControlWrapper
    >>> env = DMControlWrapper(suite.load("pendulum", "swingup"), frame_skip=2)
    >>> list(env.observation_spec.keys()), env.rollout(3)["velocity"].shape
    (['orientation', 'velocity'], torch.Size([3, 1]))
    >>> env.physics.timestep()  # an attribute of the library's environment
    0.02

    Args:
        env: the environment.
        from_pixels: render a frame in each step and add it as ``"pixels"``.
        pixels_only: with ``from_pixels``, leave out the observations of the library.
        camera_id: number or name of the camera; -1 is the free camera.
        render_kwargs: arguments of ``physics.render``: ``height``, ``width``, ``depth``, ``scene_option``, ...
        categorical_action_encoding: discrete values are integers instead of one-hot vectors.
        frame_skip: number of times that each action is repeated. Rewards are summed; the end of an episode stops it.
            One frame is rendered for all repetitions.
        device: device of the data. The library always computes on the CPU.
        **kwargs: for :class:`steppe.envs.EnvBase`: ``allow_done_after_reset``, ...

    Raises:
        NotSupported: the environment has several players, ``from_pixels`` is set and it renders no frames, or a batch
            size was passed.
        SpecError: an observation has a reserved name.
    """

    git_url = "https://github.com/google-deepmind/dm_control"
    libname = "dm_control"
    available_envs = AvailableEnvs(lambda: list(available_tasks().items()))
    """``[(domain, [task, ...]), ...]``; empty if the library is not installed."""

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
        device: torch.device | str | int | None = None,
        **kwargs: Any,
    ) -> None:
        if not hasattr(env, "observation_spec") or not hasattr(env, "action_spec"):
            raise TypeError(
                f"DMControlWrapper wraps an environment of dm_control, which has specs, found {env!r}. To make one by "
                "its name, call DMControlEnv('cheetah', 'run')."
            )
        if kwargs.get("batch_size"):
            raise NotSupported(
                "DMControlWrapper takes no batch size. For a batch, call ParallelEnv(n, 'dm:cheetah-run')."
            )
        super().__init__(env, frame_skip=frame_skip, device=device, **kwargs)
        state = self.__dict__
        state["from_pixels"] = from_pixels
        state["pixels_only"] = pixels_only
        state["categorical_action_encoding"] = categorical_action_encoding
        state["render_kwargs"] = {"camera_id": camera_id, **(render_kwargs or {})}
        self._make_library_specs()

    # -- specs ----------------------------------------------------------------------------------------------------

    def _make_library_specs(self) -> None:
        library_spec = self._env.observation_spec()
        named = isinstance(library_spec, Mapping)
        arrays = dict(library_spec) if named else {"observation": library_spec}
        entries: dict[str, Spec] = {}
        if not (self.from_pixels and self.pixels_only):
            entries = {name: array_to_spec(array, device=self.device) for name, array in arrays.items()}
        state = self.__dict__
        state["_named"] = named
        state["_entries"] = [(name, tuple(arrays[name].shape)) for name in entries]
        if self.from_pixels:
            entries[_PIXELS] = self._frame_spec()
        reserved = sorted(_RESERVED & set(entries))
        if reserved:
            raise SpecError(
                f"{self!r} observes entries named {reserved}, which are reserved keys. Rename them in the task, or in "
                "a wrapper around the environment."
            )
        action = array_to_spec(
            self._env.action_spec(), categorical_action_encoding=self.categorical_action_encoding, device=self.device
        )
        flag = Binary(shape=(1,), dtype=torch.bool, device=self.device)
        reward = torch.Size(getattr(self._env.reward_spec(), "shape", ()) or (1,))
        state["_one_reward"] = reward == (1,)
        state["_no_reward"] = 0.0 if reward == (1,) else np.zeros(reward)
        self.observation_spec = Composite(entries, device=self.device)
        self.action_spec = Composite({"action": action}, device=self.device)
        self.reward_spec = Unbounded(shape=reward, dtype=torch.float32, device=self.device)
        self.done_spec = Composite(
            {"done": flag, "terminated": flag.clone(), "truncated": flag.clone()}, device=self.device
        )

    def _frame_spec(self) -> Spec:
        frame = self.render()
        if frame.dtype == np.uint8:
            return Bounded(0, 255, shape=frame.shape, dtype=torch.uint8, device=self.device)
        dtype = torch.from_numpy(np.empty(0, frame.dtype)).dtype
        return Unbounded(shape=frame.shape, dtype=dtype, device=self.device)

    # -- the array path -------------------------------------------------------------------------------------------

    def reset_into(self, out: dict[Any, np.ndarray], seed: int | None, env_info: dict[str, object] | None) -> None:
        """Reset the environment; a seed is applied to the random state before."""
        self._write(self._env_reset(seed, env_info).observation, out)

    def step_into(self, action: Any, out: dict[Any, np.ndarray]) -> tuple[bool, bool]:
        """Step the environment ``frame_skip`` times."""
        step_type, reward, discount, observation = self._act(action)
        if self.frame_skip > 1:
            total, step = reward, 1
            while step < self.frame_skip and not step_type.last():
                step_type, reward, discount, observation = self._act(action)
                total = total + reward
                step += 1
            reward = total
        if self._one_reward:
            out["reward"][0] = reward
        else:
            write_row(out, "reward", reward)
        self._write(observation, out)
        if step_type.last():
            return self._flags_of(discount)
        return False, False

    def _act(self, action: Any) -> tuple[Any, Any, Any, Any]:
        """Step the library. If the step began a new episode, its reward is 0 instead of None.

        Raises:
            SpecError: the reward of any other step is None.
        """
        step_type, reward, discount, observation = timestep = self._env.step(action)
        if type(reward) is not float:
            if reward is None and step_type.first():
                return step_type, self._no_reward, discount, observation
            as_numbers("reward", reward)
        return timestep  # type: ignore[no-any-return]

    @staticmethod
    def _flags_of(discount: Any) -> tuple[bool, bool]:
        """Return whether an ended episode terminated, and whether it was truncated."""
        terminated = as_numbers("discount", discount).item() == 0
        return terminated, not terminated

    def _write(self, observation: Any, out: dict[Any, np.ndarray]) -> None:
        """Write the library's observations, and a frame with ``from_pixels``."""
        if not self._named:
            observation = {"observation": observation}
        try:
            for name, shape in self._entries:
                value = observation[name]
                if type(value) is np.ndarray and value.shape == shape and value.dtype.kind in "biuf":
                    out[name][...] = value
                elif shape:
                    write_row(out, name, value)
                else:
                    out[name][0] = as_numbers(name, value)
        except KeyError:
            missing = [name for name, _ in self._entries if name not in observation]
            raise SpecError(
                f"The library returned no value for {missing}, which the observation spec of {self!r} has."
            ) from None
        if self.from_pixels:
            write_row(out, _PIXELS, self.render())

    def no_rows_reason(self) -> str | None:
        if self.info_dict_reader:
            return "an info reader was set."
        return super().no_rows_reason()

    # -- the tensordict path --------------------------------------------------------------------------------------

    def read_obs(self, observations: Any) -> dict[Any, torch.Tensor]:
        """Convert the library's observations to ``{name: tensor}``.

        With ``from_pixels``, add a frame.
        """
        out = {}
        for name in [*(name for name, _ in self._entries), *([_PIXELS] if self.from_pixels else [])]:
            spec = self.full_observation_spec[name]
            out[name] = torch.empty(spec.shape, dtype=spec.dtype, device="cpu").numpy()
        self._write(observations, out)
        return {name: torch.from_numpy(array) for name, array in out.items()}

    def _output_transform(self, step_outputs: Any) -> tuple[Any, ...]:
        step_type, reward, discount, observation = step_outputs
        last = bool(step_type.last())
        terminated, truncated = self._flags_of(discount) if last else (False, False)
        if reward is None and step_type.first():
            reward = self._no_reward
        info = {"discount": 1.0 if discount is None else discount}
        return observation, reward, terminated, truncated, last, info

    def _reset_output_transform(self, reset_outputs: Any) -> tuple[Any, Any]:
        return reset_outputs.observation, {"discount": 1.0}

    def _env_reset(self, seed: int | None, env_info: dict[str, object] | None, **kwargs: Any) -> Any:
        if kwargs:
            raise TypeError(f"reset does not take {sorted(kwargs)}: the reset of dm_control takes no arguments.")
        if seed is not None:
            state = find_random_state(self._env)
            assert state is not None  # set_seed has checked that it exists
            state.seed(seed)
        return self._env.reset()

    def _set_seed(self, seed: int | None) -> None:
        if find_random_state(self._env) is None:
            if seed is None:
                return
            raise NotSupported(
                f"{self!r} cannot be seeded: it has no numpy RandomState (task.random or env.random_state). Pass the "
                "seed to the function that makes the environment."
            )
        super()._set_seed(None if seed is None else seed % 2**32)  # numpy seeds have 32 bits

    # -- the library ----------------------------------------------------------------------------------------------

    @property
    def lib(self) -> Any:
        """The module ``dm_control``."""
        import dm_control

        return dm_control

    def render(self, **kwargs: Any) -> np.ndarray:
        """Render a frame.

        Args:
            **kwargs: arguments of ``physics.render``, which override ``camera_id`` and ``render_kwargs``.

        Returns:
            ``[height, width, 3]`` uint8, unless depth or segmentation is requested.

        Raises:
            NotSupported: the environment has no physics that renders, or MuJoCo cannot render here.
        """
        physics = getattr(self._env, "physics", None)
        if physics is None or not hasattr(physics, "render"):
            raise NotSupported(f"{self!r} has no physics that renders frames.")
        prepare_rendering()
        try:
            frame: np.ndarray = physics.render(**{**self.render_kwargs, **kwargs})
        except Exception as error:
            # With MUJOCO_GL=disable, dm_control itself raises a RuntimeError.
            if type(error).__module__.partition(".")[0] != "mujoco" and "OpenGL" not in str(error):
                raise
            raise NotSupported(
                f"MuJoCo cannot render here ({error}). Before the program starts, set MUJOCO_GL=egl (a GPU or Mesa) or "
                "MUJOCO_GL=osmesa."
            ) from error
        return frame

    def __repr__(self) -> str:
        task = getattr(self.__dict__.get("_env"), "task", None)
        return f"{type(self).__name__}({type(task).__name__})"
