"""BraxEnv: environments of Brax, stepped at once by JAX."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import torch

from steppe.envs import MadeByName, base_arguments
from steppe.errors import NotSupported, SpecError
from steppe.registry import AvailableEnvs, env_not_found
from steppe.specs import Bounded
from steppe_jax import EnvFunctions, JaxEnv, Outcome, check_single

from .names import env_names

__all__ = ["BraxEnv", "BraxWrapper"]


class BraxWrapper(JaxEnv):
    """An environment of Brax, ``brax.envs.get_environment(...)``, as a batch of as many as ``batch_size`` says.

    ====================================  =============================================================================
    Key                                   What, for a batch ``[*B]``
    ====================================  =============================================================================
    ``"observation"``                     ``[*B, k]`` float32; the entries of a dict observation below it
    ``"action"``                          ``[*B, k]`` float32 in [-1, 1]
    ``"reward"``                          ``[*B, 1]`` float32
    ``"done"``                            ``[*B, 1]`` bool, with ``"terminated"`` (of the task) and ``"truncated"``
                                          (``info["truncation"]`` of Brax' ``EpisodeWrapper``)
    ``("state", "pipeline_state", ...)``  the state of Brax, with ``state_in_data``; without, ``env.jax_state`` is it
    ====================================  =============================================================================

    Without a batch size the environment is a function of its data, and takes a batch of any size; see
    :class:`steppe_jax.JaxEnv`. Seeds are those of ``jax.random``; each row draws from a key of its own.

    With ``requires_grad=True`` gradients flow through steps, as far as Brax has them, from observations and rewards to
    actions and states. What is kept for the way back is the data alone: JAX computes the step again there.

    Attributes that this class lacks (``sys``, ``backend``, ``action_size``) are looked up on the environment.

    Args:
        env: the environment, without ``VmapWrapper`` and ``AutoResetWrapper``: rows and resets are made here.
        batch_size: how many environments there are, a number or a shape.
        device: of the data.
        requires_grad: gradients flow through steps.
        state_in_data: whether the state of Brax is in the data; by default with ``requires_grad`` and without a batch
            size.
        jit: compile reset and step.
        **kwargs: for :class:`steppe.EnvBase`.

    Raises:
        NotSupported: the environment has wrappers that make a batch of it or reset it.
    """

    git_url = "https://github.com/google/brax"
    libname = "brax"
    available_envs = AvailableEnvs(env_names)

    def __init__(
        self,
        env: Any,
        *,
        batch_size: Any = (),
        device: Any = None,
        requires_grad: bool = False,
        state_in_data: bool | None = None,
        jit: bool = True,
        **kwargs: Any,
    ) -> None:
        hint = ": brax.envs.create(..., auto_reset=False, batch_size=None)"
        check_single(env, _OWN_ROWS, wrapper="BraxWrapper", hint=hint)
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

    @property
    def lib(self) -> Any:
        """The module ``brax``."""
        import brax

        return brax


class BraxEnv(MadeByName, BraxWrapper):
    """Makes an environment of Brax by its name and wraps it; see :class:`BraxWrapper` for the data.

    Args:
        env_name: a name of ``BraxEnv.available_envs``.
        episode_length: truncates an episode after so many steps; None for no limit.
        action_repeat: steps of Brax with one action; rewards are summed.
        num_workers: more than 1 makes a :class:`~steppe.batched.ParallelEnv` of this many such environments instead,
            each in a process with a JAX of its own; with ``batch_size``, of so many batches.
        batch_size, device, requires_grad, state_in_data, jit: see :class:`BraxWrapper`.
        **kwargs: for :class:`steppe.EnvBase`, and all others for the environment (``backend="spring"``, ...).

    Raises:
        EnvNotFound: Brax has no such environment.
        NotSupported: pixels, or another argument that Brax does not have.
    """

    def __init__(
        self,
        env_name: str,
        *,
        episode_length: int | None = 1000,
        action_repeat: int = 1,
        num_workers: int | None = None,
        batch_size: Any = (),
        device: Any = None,
        requires_grad: bool = False,
        state_in_data: bool | None = None,
        jit: bool = True,
        **kwargs: Any,
    ) -> None:
        from brax import envs
        from brax.envs.wrappers.training import EpisodeWrapper

        if env_name not in env_names():
            raise env_not_found("brax", env_name)
        for name in ("from_pixels", "pixels_only", "camera_id", "render_kwargs"):
            if kwargs.pop(name, None):
                raise NotSupported(
                    f"{name}=: Brax draws no pixels while it steps. Draw env.jax_state with brax.io.image or "
                    "brax.io.html instead."
                )
        own = base_arguments(kwargs)
        if episode_length is None and action_repeat != 1:
            raise SpecError("action_repeat needs an episode_length: Brax repeats actions where it counts steps.")
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
            **own,
        )
        self.__dict__["env_name"] = env_name

    def __repr__(self) -> str:
        return f"BraxEnv({self.env_name!r}, batch_size={tuple(self.batch_size)})"


_OWN_ROWS = ("VmapWrapper", "DomainRandomizationVmapWrapper", "AutoResetWrapper", "EvalWrapper")


def _functions(env: Any) -> tuple[Any, Any]:
    """Reset and step of one environment."""

    def outcome(state: Any) -> tuple[Any, Outcome]:
        done = state.done > 0
        truncated = state.info["truncation"] > 0 if "truncation" in state.info else jnp.zeros_like(done)
        return state, Outcome(state.obs, state.reward, done & ~truncated, truncated)

    return lambda key: outcome(env.reset(key)), lambda state, action: outcome(env.step(state, action))
