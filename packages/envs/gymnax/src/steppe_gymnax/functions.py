"""The functions of environments with Gymnax's methods, ``reset_env`` and ``step_env``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import torch

from steppe.errors import NotSupported, SpecError
from steppe.specs import Bounded, Categorical, OneHot, Spec
from steppe_jax import EnvFunctions, Outcome, torch_dtype, with_random_key

__all__ = ["action_spec", "changed_params", "env_functions"]

#: Names of the time limit in the parameters of environments.
_LIMITS = ("max_steps_in_episode", "max_timesteps")

_NEVER = 2**31 - 1


def env_functions(env: Any, params: Any) -> EnvFunctions:
    """Return the functions of one environment.

    Its ``step`` and ``reset`` are not used, because they reset by themselves. The state is a pair: a random key, of
    which each step splits off another one, and the state of the environment.

    Args:
        env: an environment with ``reset_env(key, params)``, ``step_env(key, state, action, params)`` and
            ``is_terminal(state, params)``.
        params: its parameters.
    """
    limit = next((name for name in _LIMITS if hasattr(params, name)), None)
    unlimited = None if limit is None else params.replace(**{limit: _NEVER})

    def reset(key: jax.Array) -> tuple[Any, Outcome]:
        observation, state = env.reset_env(key, params)
        no = jnp.zeros((), bool)
        return state, Outcome(observation, jnp.zeros((), jnp.float32), no, no)

    def step(key: jax.Array, state: Any, action: jax.Array) -> tuple[Any, Outcome]:
        observation, following, reward, done, _ = env.step_env(key, state, action, params)
        done = jnp.asarray(done, bool).reshape(())
        # Gymnax has one flag. The step is the last one of a task if it would be without a time limit, too.
        if unlimited is None:
            ended = done
        elif hasattr(following, "terminal"):
            # Some states remember that the episode is over, by the time limit too, so the step is made without a limit.
            # The compiler computes only once what both steps share.
            ended = env.step_env(key, state, action, unlimited)[3]
        else:
            ended = env.is_terminal(following, unlimited)
        terminated = done & jnp.asarray(ended, bool).reshape(())
        reward = jnp.asarray(reward, jnp.float32).reshape(())
        return following, Outcome(observation, reward, terminated, done & ~terminated)

    space = env.action_space(params)
    return with_random_key(reset, step, jax.ShapeDtypeStruct(tuple(space.shape), jnp.dtype(space.dtype)))


def changed_params(name: str, params: Any, changes: Mapping[str, Any] | None) -> Any:
    """Return the parameters of an environment with changes.

    >>> import gymnax
    >>> from steppe_gymnax import changed_params
    >>> env, params = gymnax.make("CartPole-v1")
    >>> changed_params("CartPole-v1", params, {"max_steps_in_episode": 100}).max_steps_in_episode
    100

    Args:
        name: name of the environment, for the error.
        params: its parameters, a dataclass of flax.
        changes: the new values, or None.

    Raises:
        SpecError: the environment has no such parameter.
    """
    unknown = sorted(each for each in changes or {} if not hasattr(params, each))
    if unknown:
        raise SpecError(f"{name!r} has no parameters {unknown}. It has {sorted(vars(params))}.")
    return params.replace(**changes) if changes else params


def action_spec(space: Any, *, categorical: bool) -> Spec:
    """Convert an action space of Gymnax.

    Args:
        space: a ``Discrete`` or ``Box`` of ``gymnax.environments.spaces``.
        categorical: discrete actions are integers instead of one-hot rows.

    Raises:
        NotSupported: the space is of another class.
    """
    if hasattr(space, "n"):
        return Categorical(int(space.n)) if categorical else OneHot(int(space.n))
    if not hasattr(space, "low"):
        raise NotSupported(f"The action space must be a Discrete or a Box, found {type(space).__name__}.")
    low, high = (
        torch.tensor(jnp.broadcast_to(jnp.asarray(bound, space.dtype), space.shape).tolist(), device="cpu")
        for bound in (space.low, space.high)
    )
    return Bounded(low, high, shape=tuple(space.shape), dtype=torch_dtype(space.dtype))
