"""PgxEnv: board and card games of Pgx, as functions of their data or in batches."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import torch

from steppe.envs import base_arguments
from steppe.errors import NotSupported
from steppe.registry import AvailableEnvs, env_not_found
from steppe.specs import Categorical, OneHot
from steppe_jax import JaxEnv, Outcome, with_random_key

from .names import env_names

__all__ = ["PgxEnv", "PgxWrapper"]


class PgxWrapper(JaxEnv):
    """Wrap an environment of Pgx, ``pgx.make(...)``.

    ======================  ===========================================================================================
    Key                     Value, for a batch ``[*B]``
    ======================  ===========================================================================================
    ``"observation"``       ``[*B, ...]`` in the dtype of Pgx, as the current player sees the game
    ``"action_mask"``       ``[*B, n]`` bool: the legal actions; all True after the end
    ``"current_player"``    ``[*B]`` int32: whose turn it is. Pgx draws who begins
    ``"action"``            ``[*B]`` int64, of the current player; one-hot rows with
                            ``categorical_action_encoding=False``
    ``"reward"``            ``[*B, players]`` float32, of each player, whether it acted or not
    ``"done"``              ``[*B, 1]`` bool, with ``"terminated"`` and ``"truncated"``
    ``("state", ...)``      the state of Pgx and a random key, with ``state_in_data``; otherwise see ``env.jax_state``
    ======================  ===========================================================================================

    The mask is declared as :attr:`action_masks`, so random actions (``rand_action``, ``rollout`` without a policy) are
    legal. An illegal action ends the game with a negative reward of its player, as Pgx does.

    Without a batch size, the environment is a function of its data and accepts data of any batch size; see
    :class:`steppe_jax.JaxEnv`. Each step draws from a fresh key.

    >>> import pgx
    >>> from steppe_pgx import PgxWrapper
    >>> env = PgxWrapper(pgx.make("tic_tac_toe"), batch_size=4)
    >>> env.reset()["observation"].shape
    torch.Size([4, 3, 3, 2])

    Args:
        env: the environment, without wrappers that reset it.
        categorical_action_encoding: actions are integers instead of one-hot rows.
        batch_size: number or shape of games.
        device: device of the data.
        state_in_data: whether the state is kept in the data. ``None``: yes without a batch size.
        jit: compile reset and step.
        **kwargs: for :class:`steppe.EnvBase`.

    Raises:
        NotSupported: ``env`` is no environment of Pgx.
    """

    git_url = "https://github.com/sotetsuk/pgx"
    libname = "pgx"
    available_envs = AvailableEnvs(env_names)

    def __init__(
        self,
        env: Any,
        *,
        categorical_action_encoding: bool = True,
        batch_size: torch.Size | tuple[int, ...] | list[int] | int = (),
        device: torch.device | str | int | None = None,
        state_in_data: bool | None = None,
        jit: bool = True,
        **kwargs: Any,
    ) -> None:
        from pgx import Env

        if not isinstance(env, Env):
            raise NotSupported(f"PgxWrapper wraps an environment of pgx.make(...), found {env!r}.")
        n = int(env.num_actions)
        super().__init__(
            with_random_key(*_functions(env), jax.ShapeDtypeStruct((), jnp.int32)),
            action_spec=Categorical(n) if categorical_action_encoding else OneHot(n),
            batch_size=batch_size,
            device=device,
            state_in_data=state_in_data,
            jit=jit,
            **kwargs,
        )
        self.wrap_library(env)
        self.action_masks = {"action": "action_mask"}


class PgxEnv(PgxWrapper):
    """Make an environment of Pgx by its name; see :class:`PgxWrapper` for the data.

    >>> from steppe_pgx import PgxEnv
    >>> env = PgxEnv("tic_tac_toe", batch_size=16)
    >>> env.rollout(4, break_when_any_done=False)["action"].shape  # legal moves of both players
    torch.Size([16, 4])

    Args:
        env_id: a name of ``PgxEnv.available_envs``.
        categorical_action_encoding, batch_size, device, state_in_data, jit: see :class:`PgxWrapper`.
        **kwargs: for :class:`steppe.EnvBase`; all others go to ``pgx.make``.

    Raises:
        EnvNotFound: Pgx has no such environment.
    """

    def __init__(
        self,
        env_id: str,
        *,
        categorical_action_encoding: bool = True,
        batch_size: torch.Size | tuple[int, ...] | list[int] | int = (),
        device: torch.device | str | int | None = None,
        state_in_data: bool | None = None,
        jit: bool = True,
        **kwargs: Any,
    ) -> None:
        import pgx

        if env_id not in env_names():
            raise env_not_found("pgx", env_id, names=env_names())
        base_kwargs = base_arguments(kwargs)
        super().__init__(
            pgx.make(env_id, **kwargs),
            categorical_action_encoding=categorical_action_encoding,
            batch_size=batch_size,
            device=device,
            state_in_data=state_in_data,
            jit=jit,
            **base_kwargs,
        )
        self.__dict__["env_name"] = env_id


def _functions(env: Any) -> tuple[Any, Any]:
    """Return the reset and step functions of one game."""

    def outcome(state: Any) -> tuple[Any, Outcome]:
        observation = {
            "observation": state.observation,
            "action_mask": state.legal_action_mask,
            "current_player": jnp.asarray(state.current_player, jnp.int32),
        }
        # A game that terminates in the step of its limit is not truncated.
        truncated = state.truncated & ~state.terminated
        return state, Outcome(observation, jnp.asarray(state.rewards, jnp.float32), state.terminated, truncated)

    return lambda key: outcome(env.init(key)), lambda key, state, action: outcome(env.step(state, action, key))
