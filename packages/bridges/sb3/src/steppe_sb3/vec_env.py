"""BatchVecEnv: a batch of steppe as a VecEnv of Stable-Baselines3."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import VecEnv

from steppe.arguments import ignored_argument
from steppe.envs import EnvBase
from steppe_gym import BatchVectorEnv, VectorRows, make_vec

__all__ = ["BatchVecEnv", "as_vec_env", "make_vec_env"]

_SAME_STEP = "SameStep"


def make_vec_env(
    env_id: Any,
    n_envs: int = 1,
    seed: int | None = None,
    start_index: int = 0,
    monitor_dir: str | None = None,
    wrapper_class: Callable[..., Any] | None = None,
    env_kwargs: dict[str, Any] | None = None,
    vec_env_cls: Any = None,
    vec_env_kwargs: dict[str, Any] | None = None,
    monitor_kwargs: dict[str, Any] | None = None,
    wrapper_kwargs: dict[str, Any] | None = None,
    *,
    num_processes: int | None = None,
    caller_share: bool = False,
    monitor: bool = True,
) -> BatchVecEnv:
    """Make a VecEnv that is stepped by steppe's worker processes.

    The arguments are those of ``stable_baselines3.common.env_util.make_vec_env``, and its data is equal.

    >>> from steppe_sb3 import make_vec_env
    >>> env = make_vec_env("CartPole-v1", n_envs=2, seed=0, num_processes=0)
    >>> env.reset().shape
    (2, 4)

    Args:
        env_id: an id of gymnasium, a callable that makes an environment, or the id of a plugin of steppe.
        n_envs: the number of environments.
        seed: environment ``i`` is seeded with ``seed + i`` at the first reset, and so is its action space.
        start_index: number of the first environment, for the names of monitor files and the seeds of action spaces.
        monitor_dir: folder of the monitor files.
        wrapper_class: wraps each environment, after its Monitor.
        env_kwargs: arguments of each environment.
        vec_env_cls: without an effect and with a warning: the class is BatchVecEnv.
        vec_env_kwargs: see ``vec_env_cls``.
        monitor_kwargs: arguments of each Monitor.
        wrapper_kwargs: arguments of ``wrapper_class``.
        num_processes: the number of worker processes. None: one for each usable core; 0: none, this process steps the
            environments.
        caller_share: this process steps some of the environments itself while it waits.
        monitor: wrap each environment in a Monitor, which adds the return of each episode to its info.
    """
    for name, value in (("vec_env_cls", vec_env_cls), ("vec_env_kwargs", vec_env_kwargs)):
        if value is not None:
            ignored_argument("make_vec_env", name, "num_processes and caller_share say who steps the environments")
    wrap = functools.partial(
        _wrapped,
        monitor_dir=monitor_dir if monitor else None,
        monitor_kwargs=(monitor_kwargs or {}) if monitor else None,
        wrapper_class=wrapper_class,
        wrapper_kwargs=wrapper_kwargs or {},
    )
    factories = [
        functools.partial(_seeded, env_id, None if seed is None else seed + start_index + i, env_kwargs or {})
        for i in range(n_envs)
    ]
    if isinstance(env_id, str) and _is_of_steppe(env_id):
        envs = make_vec(
            env_id,
            n_envs,
            num_processes=num_processes,
            caller_share=caller_share,
            autoreset_mode="same_step",
            **(env_kwargs or {}),
        )
    else:
        makes = [functools.partial(wrap, make, start_index + i) for i, make in enumerate(factories)]
        envs = make_vec(makes, num_processes=num_processes, caller_share=caller_share, autoreset_mode="same_step")
    vec_env = as_vec_env(envs)
    vec_env.seed(seed)
    return vec_env


def as_vec_env(envs: EnvBase | BatchVectorEnv, *, info_keys: Sequence[Any] | None = None) -> BatchVecEnv:
    """Return a batch of steppe as a VecEnv.

    >>> from steppe import SerialEnv
    >>> from steppe_sb3 import as_vec_env
    >>> env = as_vec_env(SerialEnv(2, "gym:CartPole-v1"))
    >>> env.reset().shape, env.action_space
    ((2, 4), Discrete(2))

    Args:
        envs: an environment with one batch dimension (SerialEnv, ParallelEnv, either with transforms around it), or
            the result of ``steppe_gym.make_vec`` with ``autoreset_mode="same_step"``. The VecEnv steps and closes it.
        info_keys: entries of the observations that are infos instead. None: those that the info readers of the
            environments write.

    Raises:
        NotSupported: the data of the batch has no fixed layout, or there are several rewards.
        ValueError: the vector environment has another autoreset mode.
    """
    if isinstance(envs, BatchVectorEnv):
        if envs.rows.autoreset != _SAME_STEP:
            raise ValueError(
                f"VecEnvs of Stable-Baselines3 reset in the same step, and {envs!r} has the mode "
                f"{envs.rows.autoreset!r}: make it with autoreset_mode='same_step'."
            )
        vec_env = BatchVecEnv(envs.rows)
        vec_env.made_of = envs  # before 1.0, vector environments of gymnasium close when they are garbage collected
        return vec_env
    return BatchVecEnv(VectorRows(envs, _SAME_STEP, library="gymnasium", info_keys=info_keys))


class BatchVecEnv(VecEnv):  # type: ignore[misc]
    """A batch of steppe with the API of ``stable_baselines3.common.vec_env.VecEnv``.

    :func:`make_vec_env` and :func:`as_vec_env` make it. An environment that declares its mask of actions in
    ``action_masks`` can be trained with ``MaskablePPO`` of sb3-contrib.

    >>> from steppe import SerialEnv
    >>> from steppe_sb3 import BatchVecEnv, as_vec_env
    >>> env = as_vec_env(SerialEnv(4, "gym:CartPole-v1"))  # stable_baselines3.PPO("MlpPolicy", env) trains on it
    >>> isinstance(env, BatchVecEnv), env.num_envs, env.action_space
    (True, 4, Discrete(2))
    >>> env.reset().shape
    (4, 4)

    Args:
        rows: steps the batch, and resets rows in the step in which their episodes end.

    Attributes:
        rows: the argument.
        made_of: the vector environment of gymnasium that ``as_vec_env`` was given; None for a batch.
    """

    def __init__(self, rows: VectorRows) -> None:
        self.rows = rows
        self.made_of: BatchVectorEnv | None = None
        self._actions: Any = None
        super().__init__(rows.n, rows.observation_space, rows.action_space)
        self.metadata = {**self.metadata, **rows.metadata}  # type: ignore[has-type]

    @property
    def batch(self) -> EnvBase:
        """The batch of steppe."""
        return self.rows.batch

    # -- steps ------------------------------------------------------------------------------------------------------

    def reset(self) -> Any:
        """Reset all environments with the seeds and options that were set for this reset."""
        rows, seeds = self.rows, self._seeds
        options: Any = [option or None for option in getattr(self, "_options", ())]
        rows.reset(None if all(seed is None for seed in seeds) else list(seeds), options if any(options) else None)
        infos = rows.infos()
        self.reset_infos = [infos.get(row, {}) for row in range(self.num_envs)]
        self._reset_seeds()
        if hasattr(self, "_reset_options"):
            self._reset_options()
        return rows.observation()

    def step_async(self, actions: np.ndarray) -> None:
        """Keep the actions for :meth:`step_wait`."""
        self._actions = actions

    def step_wait(self) -> tuple[Any, np.ndarray, np.ndarray, list[dict[str, Any]]]:
        """Step all environments, and reset those whose episodes end.

        Returns:
            Observations, rewards ``[n]`` float32, done ``[n]`` bool, and the info of each step. That of an episode's
            last step has ``"terminal_observation"``, and ``"TimeLimit.truncated"`` says whether a time limit ended it.
        """
        rows = self.rows
        observation, reward, terminated, truncated = rows.step(self._actions)
        infos = self._step_infos()
        done = terminated | truncated
        cut = (truncated & ~terminated).tolist() if rows.began else None
        for row, info in enumerate(infos):
            info["TimeLimit.truncated"] = cut is not None and cut[row]
        for row, last in rows.final_observations.items():
            infos[row]["terminal_observation"] = last
        return observation, reward.astype(np.float32), done, infos

    def _step_infos(self) -> list[dict[str, Any]]:
        """Return the info of each row's step; keep those of rows that were reset in ``reset_infos``."""
        rows = self.rows
        if rows.info_columns() == []:
            return [{} for _ in range(self.num_envs)]
        infos = rows.infos()
        for row in rows.began:
            self.reset_infos[row] = infos.get(row, {})
        last = rows.final_infos
        return [last[row] if row in last else infos.get(row, {}) for row in range(self.num_envs)]

    def close(self) -> None:
        """Close the environments and their workers."""
        self.rows.close()

    # -- the environments -------------------------------------------------------------------------------------------

    def has_attr(self, attr_name: str) -> bool:
        """Return whether all environments have an attribute, found through wrappers."""
        if attr_name == "action_masks" and self.rows.action_mask() is not None:
            return True
        return self.rows.has(attr_name)

    def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
        """Read an attribute of some environments, all by default."""
        if attr_name == "render_mode" and not self.rows.of_library:
            return [self.rows.render_mode] * len(self._rows_of(indices))
        if attr_name == "action_masks" and self.has_attr(attr_name):
            return [functools.partial(self.env_method, attr_name, indices=[row]) for row in self._rows_of(indices)]
        return list(self.rows.call(attr_name, None, rows=self._rows_of(indices)))

    def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:
        """Set an attribute of some environments, all by default, to one value."""
        self.rows.set(attr_name, [value] * self.num_envs, self._rows_of(indices))

    def env_method(self, method_name: str, *method_args: Any, indices: Any = None, **method_kwargs: Any) -> list[Any]:
        """Call a method of some environments, all by default."""
        rows = self._rows_of(indices)
        if method_name == "action_masks":
            mask = self.rows.action_mask()
            if mask is not None:
                return [mask[row] for row in rows]
        return list(self.rows.call(method_name, method_args, method_kwargs, rows))

    def env_is_wrapped(self, wrapper_class: type[Any], indices: Any = None) -> list[bool]:
        """Return of some environments, all by default, whether a wrapper of this class is around them."""
        wrapped = self.rows.are_wrapped(wrapper_class)
        return [wrapped[row] for row in self._rows_of(indices)]

    def get_images(self) -> Sequence[np.ndarray | None]:
        """Return a frame of each environment."""
        if self.render_mode != "rgb_array":
            return [None] * self.num_envs
        return list(self.rows.call("render"))

    def _rows_of(self, indices: Any) -> list[int]:
        return list(self._get_indices(indices))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.rows.batch!r})"


def _is_of_steppe(name: str) -> bool:
    from steppe.registry import list_plugins

    namespace, colon, _ = name.partition(":")
    return bool(colon) and namespace != "gym" and namespace in {plugin.name for plugin in list_plugins()}


def _seeded(env_id: Any, seed: int | None, kwargs: dict[str, Any]) -> Any:
    """Make an environment of gymnasium, and seed its action space."""
    if isinstance(env_id, str):
        import gymnasium

        try:
            env = gymnasium.make(env_id.removeprefix("gym:"), **{"render_mode": "rgb_array", **kwargs})
        except TypeError:  # the environment takes no render mode
            env = gymnasium.make(env_id.removeprefix("gym:"), **kwargs)
    else:
        env = env_id(**kwargs)
    if seed is not None and hasattr(env, "action_space") and not isinstance(env, EnvBase):
        env.action_space.seed(seed)
    return env


def _wrapped(
    make: Callable[[], Any],
    number: int,
    *,
    monitor_dir: str | None,
    monitor_kwargs: dict[str, Any] | None,
    wrapper_class: Callable[..., Any] | None,
    wrapper_kwargs: dict[str, Any],
) -> Any:
    """Make an environment, and wrap it as ``make_vec_env`` of Stable-Baselines3 does."""
    env = make()
    if isinstance(env, EnvBase):
        return env
    if monitor_kwargs is not None:
        path = None if monitor_dir is None else os.path.join(monitor_dir, str(number))
        if monitor_dir is not None:
            os.makedirs(monitor_dir, exist_ok=True)
        env = Monitor(env, filename=path, **monitor_kwargs)
    return env if wrapper_class is None else wrapper_class(env, **wrapper_kwargs)
