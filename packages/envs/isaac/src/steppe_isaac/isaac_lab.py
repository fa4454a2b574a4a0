"""IsaacLabEnv: environments of Isaac Lab, which reset ended rows in the same step."""

from __future__ import annotations

import inspect
from typing import Any

import torch
from tensordict import NestedKey, TensorDict, TensorDictBase

from steppe.arguments import ignored_argument
from steppe.envs import base_arguments
from steppe.errors import ArgumentError, NotSupported
from steppe.registry import AvailableEnvs, env_not_found

from .libraries import lab_tasks, start_app
from .self_resetting import SelfResettingBatch, Values
from .tiled_camera import add_tiled_camera_config

__all__ = ["IsaacLabEnv", "IsaacLabWrapper"]


class IsaacLabWrapper(SelfResettingBatch):
    """Wrap an environment of Isaac Lab, ``gymnasium.make("Isaac-...", cfg=cfg)``, as a batch.

    Environments of both kinds are wrapped, ``ManagerBasedRLEnv`` and ``DirectRLEnv``.

    ====================  ===========================================================================================
    Key                   Value, for n environments, on the device of the simulation
    ====================  ===========================================================================================
    ``"policy"``, ...     ``[n, ...]``, an entry for each group of observations; terms that the configuration does not
                          concatenate are nested: ``("policy", "joint_pos")``
    ``pixels_key``        ``[n, H, W, pixels_channels]``, with ``from_tiled_camera``
    ``"action"``          ``[n, k]`` float32; one-hot rows or integers for discrete spaces
    ``"reward"``          ``[n, 1]`` float32
    ``"done"``            ``[n, 1]`` bool, with ``"terminated"`` and ``"truncated"``
    ====================  ===========================================================================================

    Isaac Lab resets ended rows in their last step, and computes observations only afterwards. The last observation of
    an episode does not exist: ``("next", "policy")`` is NaN where done is True (0 for integers), never the first
    observation of the next episode. The reset that follows returns that one. With ``final_observations=True``, the
    wrapper computes observations before the library resets rows, so last observations are true ones. This costs the
    computation of observations once more in steps in which rows end, and noise that the configuration adds is drawn
    once more.

    Rows can be reset alone in the middle of an episode. Environments made of managers can continue from a state of the
    scene: see :meth:`get_state` and :meth:`reset_to_state`.

    >>> from isaaclab.app import AppLauncher
    >>> app = AppLauncher(headless=True)  # starts Isaac Sim, which must run before the next imports
    >>> import gymnasium
    >>> from isaaclab_tasks.utils import parse_env_cfg
    >>> from steppe_isaac import IsaacLabWrapper
    >>> config = parse_env_cfg("Isaac-Cartpole-v0", device="cpu", num_envs=4)
    >>> env = IsaacLabWrapper(gymnasium.make("Isaac-Cartpole-v0", cfg=config), final_observations=True)
    >>> env.rollout(3, break_when_any_done=False)["next", "reward"].shape
    torch.Size([4, 3, 1])

    Args:
        env: the environment.
        categorical_action_encoding: discrete actions are integers instead of one-hot rows.
        final_observations: compute true last observations.
        missing_obs_value: the value of last observations that do not exist. ``None``: NaN, or 0 for integers.
        from_tiled_camera: add the image of a tiled camera.
        tiled_camera_name: name of the sensor in ``env.scene.sensors``.
        tiled_camera_data_type: type of the data of the camera.
        pixels_key: key of the image.
        pixels_dtype: dtype of the image. Values of floating point become uint8 as ``255 * value``. ``None``: the dtype
            of the camera.
        pixels_channels: number of channels that are kept. ``None``: all.
        native_autoreset: TorchRL's argument, which has no effect: rows are always reset by the library.
        device: device of the data. ``None``: the device of the simulation.
        **kwargs: for :class:`steppe.envs.EnvBase`.

    Raises:
        NotSupported: the environment has several agents.
    """

    git_url = "https://github.com/isaac-sim/IsaacLab"
    libname = "isaaclab"
    library = "Isaac Lab"
    available_envs = AvailableEnvs(lab_tasks)
    add_tiled_camera_config = staticmethod(add_tiled_camera_config)

    def __init__(
        self,
        env: Any,
        *,
        categorical_action_encoding: bool = False,
        final_observations: bool = False,
        missing_obs_value: float | None = None,
        from_tiled_camera: bool = False,
        tiled_camera_name: str = "tiled_camera",
        tiled_camera_data_type: str = "rgb",
        pixels_key: NestedKey = "pixels",
        pixels_dtype: torch.dtype | None = torch.uint8,
        pixels_channels: int | None = 3,
        native_autoreset: bool | None = None,
        device: torch.device | str | int | None = None,
        **kwargs: Any,
    ) -> None:
        unwrapped = env.unwrapped
        if not hasattr(unwrapped, "single_action_space"):
            raise NotSupported(
                f"{type(unwrapped).__name__} has several agents, or no rewards. Convert it with "
                "isaaclab.envs.multi_agent_to_single_agent(env)."
            )
        if native_autoreset is not None:
            ignored_argument("IsaacLabWrapper", "native_autoreset", "rows are always reset by the library")
        super().__init__(
            env,
            n=int(unwrapped.num_envs),
            library_device=torch.device(unwrapped.device),
            action_space=unwrapped.single_action_space,
            categorical_action_encoding=categorical_action_encoding,
            device=device,
            **kwargs,
        )
        state = self.__dict__
        state["missing_obs_value"] = missing_obs_value
        # Environments written as one class have no `reset_to`.
        state["_supports_set_state"] = hasattr(unwrapped, "reset_to")
        state["_camera"] = (tiled_camera_name, tiled_camera_data_type) if from_tiled_camera else None
        state["pixels_key"], state["pixels_dtype"], state["pixels_channels"] = pixels_key, pixels_dtype, pixels_channels
        #: First observations of rows that the library has reset, until a reset returns them.
        state["_fresh"] = {}
        state["_has_fresh"] = torch.zeros(self.batch_size, dtype=torch.bool, device=self._library_device)
        state["_final"] = None
        if final_observations:
            self._compute_final_observations(unwrapped)
        self.declare_observations(self.begin(None))

    @property
    def lib(self) -> Any:
        """The module ``isaaclab``."""
        import isaaclab

        return isaaclab

    def find_elsewhere(self, name: str) -> Any:
        # Wrappers of gymnasium do not pass attributes on.
        env = vars(self).get("_env")
        inner = None if env is None or name.startswith("__") else env.unwrapped
        return getattr(inner, name) if hasattr(inner, name) else super().find_elsewhere(name)

    # -- observations ---------------------------------------------------------------------------------------------

    def _observe(self, observation: Any) -> Values:
        values = self.read(observation)
        if self._camera is not None:
            values[self.pixels_key] = self._image(*self._camera)
        return values

    def _image(self, name: str, data_type: str) -> torch.Tensor:
        sensors = self._env.unwrapped.scene.sensors
        if name not in sensors:
            raise ArgumentError(
                f"The scene has no sensor {name!r}, found {sorted(sensors)}. Add it to the configuration of the task: "
                f"IsaacLabWrapper.add_tiled_camera_config(cfg, sensor_name={name!r})."
            )
        image = next(iter(self.read(sensors[name].data.output[data_type]).values()))
        if self.pixels_channels is not None:
            image = image[..., : self.pixels_channels]
        if self.pixels_dtype is not None and image.dtype != self.pixels_dtype:
            if self.pixels_dtype == torch.uint8 and image.dtype.is_floating_point:
                image = (image * 255).clamp(0, 255)
            image = image.to(self.pixels_dtype)
        return image

    def _compute_final_observations(self, unwrapped: Any) -> None:
        """Let the library's reset of rows keep the observations that it overwrites."""
        reset_rows = unwrapped._reset_idx

        def keep_and_reset(env_ids: Any, *args: Any, **kwargs: Any) -> Any:
            if self.__dict__.get("_stepping"):
                self.__dict__["_final"] = self._observe(_current_observations(unwrapped))
            return reset_rows(env_ids, *args, **kwargs)

        unwrapped._reset_idx = keep_and_reset

    def _missing(self, value: torch.Tensor) -> torch.Tensor:
        fill = self.missing_obs_value
        if fill is None:
            fill = float("nan") if value.dtype.is_floating_point else 0
        return torch.full((), fill, dtype=value.dtype, device=value.device)

    # -- the contract ---------------------------------------------------------------------------------------------

    def begin(self, mask: torch.Tensor | None) -> Values:
        """Return the first observations of rows that the library has reset, or reset them."""
        if mask is None or not self._fresh:
            values = self._observe(self._random.call(self._env.reset)[0])
            self._has_fresh.zero_()
        elif not bool((mask & ~self._has_fresh).any()):
            values = {key: value.clone() for key, value in self._fresh.items()}
            self._has_fresh.logical_and_(~mask)
            return values
        else:
            # Rows that have been reset keep their first observations, of which the others are now newer.
            rows = (mask & ~self._has_fresh).nonzero()[:, 0]
            newer = self._observe(self._random.call(self._reset_rows, rows))
            for key, value in self._fresh.items():
                value[rows] = newer[key][rows]
            values = {key: value.clone() for key, value in self._fresh.items()}
            self._has_fresh.logical_and_(~mask)
            return values
        self.__dict__["_fresh"] = {key: value.clone() for key, value in values.items()}
        return values

    def _reset_rows(self, rows: torch.Tensor) -> Any:
        env = self._env.unwrapped
        if "env_ids" in inspect.signature(env.reset).parameters:
            return env.reset(env_ids=rows)[0]
        env._reset_idx(rows)
        env.scene.write_data_to_sim()
        env.sim.forward()
        return env._get_observations()

    # -- states of the scene --------------------------------------------------------------------------------------

    def get_state(self) -> Any:
        """Return the state of the scene: positions and velocities of its objects, in the format of Isaac Lab.

        Keep it, and continue from it with :meth:`reset_to_state`. It holds neither the steps of the episode, which
        begin at 0 again, nor what managers keep, such as commands, which are drawn again.

        Returns:
            ``env.scene.get_state()``: nested dicts of tensors ``[n, ...]``, copied.
        """
        return self._env.unwrapped.scene.get_state()

    def reset_to_state(
        self,
        state: Any,
        tensordict: TensorDictBase | None = None,
        *,
        is_relative: bool = False,
        seed: int | None = None,
    ) -> TensorDictBase:
        """Begin an episode at a state of the scene.

        If transforms are around this environment, call ``env.reset(tensordict, set_state=True, scene_state=state)`` on
        the outermost one, which resets them too.

        Args:
            state: what :meth:`get_state` returned, for all rows.
            tensordict: data with a ``"_reset"`` mask, if only some rows begin again. ``None``: all rows.
            is_relative: positions are relative to the origins of the environments.
            seed: seeds the random values that the reset draws.

        Returns:
            The data of the reset.

        Raises:
            NotSupported: the environment is a ``DirectRLEnv``, which cannot be put into a state.
        """
        if tensordict is None:
            tensordict = TensorDict({}, self.batch_size, device=self.device)
        return self.reset(tensordict, set_state=True, scene_state=state, is_relative=is_relative, seed=seed)

    def _reset(
        self,
        tensordict: TensorDictBase | None = None,
        *,
        set_state: bool | None = None,
        scene_state: Any = None,
        is_relative: bool = False,
        seed: int | None = None,
        **kwargs: Any,
    ) -> TensorDictBase:
        if set_state and scene_state is None:
            raise ArgumentError("reset(set_state=True) needs scene_state=, a state that env.get_state() returned.")
        if not set_state:
            if scene_state is not None:
                raise ArgumentError("reset(scene_state=...) needs set_state=True, or call env.reset_to_state(state).")
            return super()._reset(tensordict, **kwargs)
        mask, n = self.mask_of(tensordict), self.batch_size[0]
        rows = torch.arange(n, device=self._library_device) if mask is None else mask.nonzero()[:, 0]
        values = self._observe(
            self._random.call(
                self._env.unwrapped.reset_to, _rows_of(scene_state, rows, n), rows, seed=seed, is_relative=is_relative
            )[0]
        )
        # Other rows that have been reset keep their first observations.
        for key, value in self._fresh.items():
            value[rows] = values[key][rows]
        self._has_fresh[rows] = False
        return self.data_of(values)

    def _step(self, tensordict: TensorDictBase) -> TensorDictBase:
        action = self.action_of(tensordict)
        self.__dict__["_final"], self.__dict__["_stepping"] = None, True
        try:
            observation, reward, terminated, truncated, _ = self._random.call(self._env.step, action)
        finally:
            self.__dict__["_stepping"] = False
        fresh = self._observe(observation)
        # The library changes its buffers of flags in place.
        terminated, truncated = terminated.to(torch.bool).clone(), truncated.to(torch.bool).clone()
        ended = terminated | truncated
        self.__dict__["_fresh"], self.__dict__["_has_fresh"] = fresh, ended.clone()
        final = self._final
        values: Values = {}
        for key, value in fresh.items():
            rows = ended.reshape(-1, *(1 for _ in value.shape[1:]))
            values[key] = torch.where(rows, self._missing(value) if final is None else final[key], value)
        values["reward"] = reward.detach().to(torch.float32, copy=True).unsqueeze(-1)
        return self.data_of(values, terminated=terminated, truncated=truncated)

    def _set_seed(self, seed: int | None) -> None:
        super()._set_seed(seed)
        if seed is not None:  # also Replicator and Warp
            self._random.call(self._env.unwrapped.seed, int(seed) % 2**32)

    def render(self, **kwargs: Any) -> Any:
        """Return the image of the viewer, ``[H, W, 3]`` uint8, with ``render_mode="rgb_array"``; otherwise None."""
        return self._env.render(**kwargs)


def _current_observations(env: Any) -> Any:
    """Compute the observations of the present state."""
    manager = getattr(env, "observation_manager", None)
    return env._get_observations() if manager is None else manager.compute()


def _rows_of(state: Any, rows: torch.Tensor, n: int) -> Any:
    """Return some rows of the tensors ``[n, ...]`` in nested dicts."""
    if isinstance(state, torch.Tensor):
        return state[rows.to(state.device)] if state.shape[:1] == (n,) else state
    return {name: _rows_of(value, rows, n) for name, value in state.items()}


class IsaacLabEnv(IsaacLabWrapper):
    """Make an environment of Isaac Lab by the name of its task; see :class:`IsaacLabWrapper` for the data.

    Isaac Sim is started, unless it runs in this process.

    >>> from steppe_isaac import IsaacLabEnv
    >>> env = IsaacLabEnv("Isaac-Cartpole-v0", num_envs=8, device="cpu")
    >>> env.batch_size, env.action_spec.shape
    (torch.Size([8]), torch.Size([8, 1]))

    Args:
        task: a name of ``IsaacLabEnv.available_envs``, which begins with ``"Isaac-"``.
        num_envs: number of environments. ``None``: the number in the configuration of the task.
        device: device of the simulation and of the data.
        cfg: configuration of the task, changed by neither of the arguments above. ``None``: the registered one.
        render_mode: ``"rgb_array"`` for :meth:`render`, which needs ``enable_cameras=True``.
        headless: start Isaac Sim without a window.
        enable_cameras: start Isaac Sim so that it renders images. ``from_tiled_camera`` and ``render_mode`` need it.
        seed: the first seed.
        **kwargs: for :class:`IsaacLabWrapper` and :class:`steppe.envs.EnvBase`.

    Raises:
        EnvNotFound: there is no such task.
    """

    def __init__(
        self,
        task: str,
        *,
        num_envs: int | None = None,
        device: torch.device | str | int = "cuda:0",
        cfg: Any = None,
        render_mode: str | None = None,
        headless: bool = True,
        enable_cameras: bool | None = None,
        seed: int | None = None,
        **kwargs: Any,
    ) -> None:
        if num_envs is not None and (isinstance(num_envs, bool) or not isinstance(num_envs, int) or num_envs < 1):
            raise ArgumentError(f"num_envs must be an integer >= 1, found {num_envs!r}.")
        if enable_cameras is None:
            enable_cameras = render_mode == "rgb_array" or bool(kwargs.get("from_tiled_camera"))
        start_app(headless=headless, enable_cameras=enable_cameras)
        if task not in (names := lab_tasks()):
            raise env_not_found("isaaclab", task, names=names)
        import gymnasium

        if cfg is None:
            from isaaclab_tasks.utils import parse_env_cfg

            where = f"cuda:{device}" if isinstance(device, int) else str(device)
            cfg = parse_env_cfg(task, device=where, num_envs=num_envs)
        super().__init__(gymnasium.make(task, cfg=cfg, render_mode=render_mode), **_own(kwargs))
        self.__dict__["task"] = task
        if seed is not None:
            self.set_seed(seed)

    def __repr__(self) -> str:
        return f"IsaacLabEnv({self.__dict__.get('task')!r}, num_envs={self.batch_size[0]})"


_OWN = frozenset(inspect.signature(IsaacLabWrapper.__init__).parameters)


def _own(kwargs: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments of the wrapper and of EnvBase.

    Raises:
        TypeError: others are left.
    """
    taken = {**base_arguments(kwargs), **{name: kwargs.pop(name) for name in list(kwargs) if name in _OWN}}
    if kwargs:
        raise TypeError(f"IsaacLabEnv does not take {sorted(kwargs)}. Pass a configuration of the task as cfg.")
    return taken
