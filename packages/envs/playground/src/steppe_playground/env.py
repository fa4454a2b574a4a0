"""MujocoPlaygroundEnv: environments of MuJoCo Playground, stepped in batches by MJX."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import torch

from steppe.envs import MadeByName
from steppe.errors import NotSupported, SpecError
from steppe.registry import AvailableEnvs, env_not_found
from steppe.specs import Bounded
from steppe_jax import EnvFunctions, JaxEnv, Outcome, check_single, own_arguments

from .names import env_names

__all__ = ["MujocoPlaygroundEnv", "MujocoPlaygroundWrapper"]

#: Wrappers of Playground and Brax that batch or reset.
_BATCH_WRAPPERS = ("VmapWrapper", "AutoResetWrapper", "BraxAutoResetWrapper", "EpisodeWrapper")


class MujocoPlaygroundWrapper(JaxEnv):
    """Wrap an environment of MuJoCo Playground, ``mujoco_playground.registry.load(...)``.

    ====================  =============================================================================================
    Key                   Value, for a batch ``[*B]``
    ====================  =============================================================================================
    ``"observation"``     ``[*B, k]`` float32; entries of a dict observation have their own names, such as
                          ``"privileged_state"``; a ``"state"`` among them is ``("observation", "state")``, and all
                          are below ``"observation"`` then
    ``"action"``          ``[*B, k]`` float32 in [-1, 1]
    ``"reward"``          ``[*B, 1]`` float32
    ``"done"``            ``[*B, 1]`` bool, with ``"terminated"`` (by the task) and ``"truncated"`` (after
                          ``episode_length`` steps)
    ``("state", ...)``    the state of Playground and the number of steps, with ``state_in_data``; otherwise see
                          ``env.jax_state``
    ====================  =============================================================================================

    >>> from mujoco_playground import registry
    >>> from steppe_playground import MujocoPlaygroundWrapper
    >>> cartpole = registry.load("CartpoleBalance", config_overrides={"impl": "jax"})
    >>> env = MujocoPlaygroundWrapper(cartpole, batch_size=2)
    >>> env.observation_spec["observation"].shape
    torch.Size([2, 5])

    Args:
        env: the environment, without wrappers that batch or reset it.
        episode_length: truncate an episode after this many steps. ``None``: no limit.
        batch_size: number or shape of environments.
        device: device of the data.
        state_in_data: whether the state is kept in the data. ``None``: yes without a batch size.
        jit: compile reset and step.
        **kwargs: for :class:`steppe.EnvBase`.

    Raises:
        NotSupported: the environment has a wrapper that batches or resets it, or ``agent_mapping`` was passed.
        SpecError: ``episode_length`` is below 1.
    """

    git_url = "https://github.com/google-deepmind/mujoco_playground"
    libname = "mujoco_playground"
    available_envs = AvailableEnvs(env_names)

    def __init__(
        self,
        env: Any,
        *,
        episode_length: int | None = None,
        batch_size: torch.Size | tuple[int, ...] | list[int] | int = (),
        device: torch.device | str | int | None = None,
        state_in_data: bool | None = None,
        jit: bool = True,
        **kwargs: Any,
    ) -> None:
        if kwargs.pop("agent_mapping", None) is not None:
            raise NotSupported("agent_mapping is not supported: all joints are those of one agent.")
        if episode_length is not None and episode_length < 1:
            raise SpecError(f"episode_length must be at least 1, found {episode_length}.")
        check_single(env, _BATCH_WRAPPERS, wrapper="MujocoPlaygroundWrapper")
        size = int(env.action_size)
        super().__init__(
            EnvFunctions(*_functions(env, episode_length), jax.ShapeDtypeStruct((size,), jnp.float32)),
            action_spec=Bounded(-1.0, 1.0, shape=(size,), dtype=torch.float32),
            batch_size=batch_size,
            device=device,
            state_in_data=state_in_data,
            jit=jit,
            **kwargs,
        )
        self.wrap_library(env)
        self.__dict__["episode_length"] = episode_length


class MujocoPlaygroundEnv(MadeByName, MujocoPlaygroundWrapper):
    """Make an environment of MuJoCo Playground by its name; see :class:`MujocoPlaygroundWrapper` for the data.

    >>> from steppe_playground import MujocoPlaygroundEnv
    >>> MujocoPlaygroundEnv("CartpoleBalance", batch_size=4, episode_length=200).action_spec.shape
    torch.Size([4, 1])

    Args:
        env_name: a name of ``MujocoPlaygroundEnv.available_envs``.
        config: a configuration of Playground. ``None``: the default of the environment.
        config_overrides: changes of the configuration: ``{"ctrl_dt": 0.02}``. Without a GPU, ``impl`` is ``"jax"``
            unless it is set here: the implementation in Warp is made for GPUs.
        episode_length: truncate an episode after this many steps. ``None``: the length in the configuration.
        num_workers: a number above 1 makes a :class:`~steppe.ParallelEnv` of this many environments (with
            ``batch_size``: batches) instead, each in a process with its own JAX.
        batch_size, device, state_in_data, jit: see :class:`MujocoPlaygroundWrapper`.
        **kwargs: for :class:`steppe.EnvBase`.

    Raises:
        EnvNotFound: Playground has no such environment.
        NotSupported: ``agent_mapping``, or an argument for pixels.
    """

    def __init__(
        self,
        env_name: str,
        *,
        config: Any = None,
        config_overrides: Mapping[str, Any] | None = None,
        episode_length: int | None = None,
        num_workers: int | None = None,
        batch_size: torch.Size | tuple[int, ...] | list[int] | int = (),
        device: torch.device | str | int | None = None,
        state_in_data: bool | None = None,
        jit: bool = True,
        **kwargs: Any,
    ) -> None:
        from mujoco_playground import registry

        if env_name not in registry.ALL_ENVS:
            raise env_not_found("playground", env_name, names=env_names())
        agents = {name: kwargs.pop(name) for name in ("agent_mapping",) if name in kwargs}
        base_kwargs = own_arguments("MujocoPlaygroundEnv", kwargs)
        if kwargs:
            raise TypeError(f"MujocoPlaygroundEnv does not take {sorted(kwargs)}: use config_overrides={{...}}.")
        config = registry.get_default_config(env_name) if config is None else config
        overrides = dict(config_overrides or {})
        if "impl" in config and jax.default_backend() == "cpu":
            overrides.setdefault("impl", "jax")
        super().__init__(
            registry.load(env_name, config=config, config_overrides=overrides),
            episode_length=int(config.episode_length) if episode_length is None else episode_length,
            batch_size=batch_size,
            device=device,
            state_in_data=state_in_data,
            jit=jit,
            **agents,
            **base_kwargs,
        )
        self.__dict__["env_name"] = env_name


def _functions(env: Any, limit: int | None) -> tuple[Any, Any]:
    """Return the reset and step functions of one environment. The state is the number of steps and that of the task."""

    def outcome(steps: jax.Array, state: Any) -> tuple[Any, Outcome]:
        terminated = jnp.asarray(state.done, bool)
        over = jnp.zeros((), bool) if limit is None else steps >= limit
        return (steps, state), Outcome(state.obs, state.reward, terminated, over & ~terminated)

    def reset(key: jax.Array) -> tuple[Any, Outcome]:
        return outcome(jnp.zeros((), jnp.int32), env.reset(key))

    def step(pair: Any, action: jax.Array) -> tuple[Any, Outcome]:
        return outcome(pair[0] + 1, env.step(pair[1], action))

    return reset, step
