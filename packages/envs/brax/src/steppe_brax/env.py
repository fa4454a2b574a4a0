"""BraxEnv: environments of Brax, stepped in batches by JAX."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import torch
from tensordict import TensorDictBase

from steppe.arguments import ignored_argument
from steppe.envs import MadeByName
from steppe.errors import NotSupported, SpecError
from steppe.registry import AvailableEnvs, env_not_found
from steppe.specs import Bounded
from steppe.systems import render_without_display
from steppe_jax import EnvFunctions, JaxEnv, Outcome, check_single, own_arguments

from .names import env_names

__all__ = ["BraxEnv", "BraxWrapper"]


class BraxWrapper(JaxEnv):
    """Wrap an environment of Brax, ``brax.envs.get_environment(...)``.

    ====================================  =============================================================================
    Key                                   Value, for a batch ``[*B]``
    ====================================  =============================================================================
    ``"observation"``                     ``[*B, k]`` float32; entries of a dict observation are nested below it
    ``"action"``                          ``[*B, k]`` float32 in [-1, 1]
    ``"reward"``                          ``[*B, 1]`` float32
    ``"done"``                            ``[*B, 1]`` bool, with ``"terminated"`` (by the task) and ``"truncated"``
                                          (``info["truncation"]`` of Brax' ``EpisodeWrapper``)
    ``("state", "pipeline_state", ...)``  the state of Brax, with ``state_in_data``; otherwise see ``env.jax_state``
    ====================================  =============================================================================

    Without a batch size, the environment is a function of its data and accepts data of any batch size; see
    :class:`steppe_jax.JaxEnv`. Seeds are seeds of ``jax.random``. Each row has its own random key.

    With ``requires_grad=True``, gradients flow through steps from observations and rewards to actions and states, where
    Brax is differentiable. Only the data is saved: the backward pass computes each step again in JAX.

    Attributes that this class lacks (``sys``, ``backend``, ``action_size``) are looked up on the environment.

    >>> from brax import envs
    >>> from steppe_brax import BraxWrapper
    >>> env = BraxWrapper(envs.get_environment("fast"), batch_size=4)
    >>> env.rollout(3)["observation"].shape
    torch.Size([4, 3, 2])

    Args:
        env: the environment, without ``VmapWrapper`` and ``AutoResetWrapper``: steppe batches and resets it itself.
        categorical_action_encoding: an argument of TorchRL without effect. Actions are continuous.
        cache_clear_frequency: an argument of TorchRL without effect. There is no cache to clear.
        batch_size: number or shape of environments.
        device: device of the data.
        requires_grad: let gradients flow through steps.
        state_in_data: whether the state of Brax is kept in the data. ``None``: yes with ``requires_grad`` or without a
            batch size.
        jit: compile reset and step.
        **kwargs: for :class:`steppe.EnvBase`.

    Raises:
        NotSupported: the environment has a wrapper that batches or resets it.
    """

    git_url = "https://github.com/google/brax"
    libname = "brax"
    available_envs = AvailableEnvs(env_names)

    def __init__(
        self,
        env: Any,
        categorical_action_encoding: bool | None = False,
        cache_clear_frequency: int | None = None,
        *,
        batch_size: torch.Size | tuple[int, ...] | list[int] | int = (),
        device: torch.device | str | int | None = None,
        requires_grad: bool = False,
        state_in_data: bool | None = None,
        jit: bool = True,
        **kwargs: Any,
    ) -> None:
        if categorical_action_encoding:
            ignored_argument("BraxWrapper", "categorical_action_encoding", "actions of Brax are continuous")
        if cache_clear_frequency:
            ignored_argument("BraxWrapper", "cache_clear_frequency", "steps keep no functions of JAX that fill a cache")
        hint = ": brax.envs.create(..., auto_reset=False, batch_size=None)"
        check_single(env, _BATCH_WRAPPERS, wrapper="BraxWrapper", hint=hint)
        size = int(env.action_size)
        super().__init__(
            EnvFunctions(*_functions(env), jax.ShapeDtypeStruct((size,), jnp.float32)),
            action_spec=Bounded(-1.0, 1.0, shape=(size,), dtype=torch.float32),
            batch_size=batch_size,
            device=device,
            state_in_data=state_in_data,
            requires_grad=requires_grad,
            jit=jit,
            **kwargs,
        )
        self.wrap_library(env)

    def render(self, tensordict: TensorDictBase | None = None, row: int = 0, **kwargs: Any) -> Any:
        """Draw one environment with MuJoCo, as ``brax.io.image`` does.

        Args:
            tensordict: data with the state. None if the environment keeps the state.
            row: index of the environment in a batch.
            **kwargs: ``height``, ``width`` and ``camera``.

        Returns:
            ``[height, width, 3]`` uint8.

        Raises:
            NotSupported: the environment has no model of MuJoCo.
        """
        if not hasattr(self._env.unwrapped, "sys"):
            raise NotSupported(f"{self!r} has no MuJoCo model, so it cannot be drawn.")
        from brax.io import image

        return image.render_array(self._env.sys, self.native_state(tensordict, row).pipeline_state, **kwargs)


class BraxEnv(MadeByName, BraxWrapper):
    """Make an environment of Brax by its name; see :class:`BraxWrapper` for the data.

    >>> from steppe_brax import BraxEnv
    >>> env = BraxEnv("fast", batch_size=8)  # a small environment for tests; "ant" takes a minute to compile
    >>> env.rollout(5, break_when_any_done=False)["next", "reward"].shape
    torch.Size([8, 5, 1])

    Args:
        env_name: a name of ``BraxEnv.available_envs``.
        episode_length: truncate an episode after this many steps. ``None``: no limit.
        action_repeat: number of Brax steps with each action. Their rewards are summed.
        render_mode: ``"rgb_array"`` if ``render`` will be called. The state then stays in the environment, where
            ``render()`` finds it, unless ``state_in_data`` is True; without a display, MuJoCo renders through EGL.
        num_workers: a number above 1 makes a :class:`~steppe.batched.ParallelEnv` of this many environments (with
            ``batch_size``: batches) instead, each in a process with its own JAX.
        batch_size, device, requires_grad, state_in_data, jit, cache_clear_frequency: see :class:`BraxWrapper`.
        **kwargs: for :class:`steppe.EnvBase`; all others go to the environment (``backend="spring"``, ...).

    Raises:
        EnvNotFound: Brax has no such environment.
        NotSupported: an argument for pixels was passed, but Brax renders no pixels in steps.
    """

    def __init__(
        self,
        env_name: str,
        *,
        episode_length: int | None = 1000,
        action_repeat: int = 1,
        render_mode: str | None = None,
        num_workers: int | None = None,
        batch_size: torch.Size | tuple[int, ...] | list[int] | int = (),
        device: torch.device | str | int | None = None,
        requires_grad: bool = False,
        state_in_data: bool | None = None,
        jit: bool = True,
        **kwargs: Any,
    ) -> None:
        if render_mode not in (None, "rgb_array"):
            raise NotSupported(f"render_mode must be 'rgb_array' or None, found {render_mode!r}.")
        if render_mode is not None:
            render_without_display()
            state_in_data = bool(state_in_data)
        from brax import envs
        from brax.envs.wrappers.training import EpisodeWrapper

        if env_name not in env_names():
            raise env_not_found("brax", env_name)
        base_kwargs = own_arguments("BraxEnv", kwargs)
        for name in ("categorical_action_encoding", "cache_clear_frequency"):
            base_kwargs[name] = kwargs.pop(name, None)
        if episode_length is None and action_repeat != 1:
            raise SpecError(
                "action_repeat needs an episode_length: in Brax, one wrapper repeats actions and counts steps."
            )
        env = envs.get_environment(env_name, **kwargs)
        if episode_length is not None:
            env = EpisodeWrapper(env, episode_length, action_repeat)
        super().__init__(
            env,
            batch_size=batch_size,
            device=device,
            requires_grad=requires_grad,
            state_in_data=state_in_data,
            jit=jit,
            **base_kwargs,
        )
        self.__dict__["env_name"] = env_name


_BATCH_WRAPPERS = ("VmapWrapper", "DomainRandomizationVmapWrapper", "AutoResetWrapper", "EvalWrapper")


def _functions(env: Any) -> tuple[Any, Any]:
    """Return the reset and step functions of one environment."""

    def outcome(state: Any) -> tuple[Any, Outcome]:
        done = state.done > 0
        truncated = state.info["truncation"] > 0 if "truncation" in state.info else jnp.zeros_like(done)
        return state, Outcome(state.obs, state.reward, done & ~truncated, truncated)

    return lambda key: outcome(env.reset(key)), lambda state, action: outcome(env.step(state, action))
