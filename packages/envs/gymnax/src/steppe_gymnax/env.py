"""GymnaxEnv: environments of Gymnax, as functions of their data or in batches."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from steppe.envs import base_arguments
from steppe.errors import NotSupported
from steppe.registry import AvailableEnvs, env_not_found
from steppe_jax import JaxEnv

from .functions import action_spec, changed_params, env_functions
from .names import BROKEN, env_names

__all__ = ["GymnaxEnv", "GymnaxWrapper"]


class GymnaxWrapper(JaxEnv):
    """Wrap an environment of Gymnax, or one with its methods.

    ====================  =============================================================================================
    Key                   Value, for a batch ``[*B]``
    ====================  =============================================================================================
    ``"observation"``     ``[*B, ...]`` in the dtype of Gymnax; entries of a dict have their own names
    ``"action"``          ``[*B]`` int64, or ``[*B, k]`` in the bounds of a Box; one-hot rows with
                          ``categorical_action_encoding=False``
    ``"reward"``          ``[*B, 1]`` float32
    ``"done"``            ``[*B, 1]`` bool, with ``"terminated"`` (by the task) and ``"truncated"`` (by its time
                          limit)
    ``("state", ...)``    the state of Gymnax and a random key, with ``state_in_data``; otherwise see ``env.jax_state``
    ====================  =============================================================================================

    Without a batch size, the environment is a function of its data and accepts data of any batch size; see
    :class:`steppe_jax.JaxEnv`. Each step draws from a fresh key.

    >>> import gymnax
    >>> from steppe_gymnax import GymnaxWrapper
    >>> library_env, params = gymnax.make("CartPole-v1")
    >>> GymnaxWrapper(library_env, params, batch_size=4).rollout(3)["observation"].shape
    torch.Size([4, 3, 4])

    Args:
        env: the environment.
        params: its parameters. ``None``: ``env.default_params``.
        categorical_action_encoding: discrete actions are integers instead of one-hot rows.
        batch_size: number or shape of environments.
        device: device of the data.
        state_in_data: whether the state is kept in the data. ``None``: yes without a batch size.
        jit: compile reset and step.
        **kwargs: for :class:`steppe.EnvBase`.

    Attributes:
        params: the parameters.

    Raises:
        NotSupported: the environment lacks the methods of Gymnax.
    """

    git_url = "https://github.com/RobertTLange/gymnax"
    libname = "gymnax"
    available_envs = AvailableEnvs(env_names)

    def __init__(
        self,
        env: Any,
        params: Any = None,
        *,
        categorical_action_encoding: bool = True,
        batch_size: torch.Size | tuple[int, ...] | list[int] | int = (),
        device: torch.device | str | int | None = None,
        state_in_data: bool | None = None,
        jit: bool = True,
        **kwargs: Any,
    ) -> None:
        if not all(hasattr(env, name) for name in ("reset_env", "step_env", "is_terminal")):
            raise NotSupported(
                f"{type(self).__name__} needs an environment with reset_env, step_env and is_terminal, found "
                f"{type(env).__name__}. Pass the environment inside of wrappers."
            )
        params = env.default_params if params is None else params
        super().__init__(
            env_functions(env, params),
            action_spec=action_spec(env.action_space(params), categorical=categorical_action_encoding),
            batch_size=batch_size,
            device=device,
            state_in_data=state_in_data,
            jit=jit,
            **kwargs,
        )
        self.wrap_library(env)
        self.__dict__["params"] = params


class GymnaxEnv(GymnaxWrapper):
    """Make an environment of Gymnax by its name; see :class:`GymnaxWrapper` for the data.

    >>> from steppe_gymnax import GymnaxEnv
    >>> env = GymnaxEnv("CartPole-v1", env_params={"max_steps_in_episode": 5}, batch_size=16)
    >>> env.rollout(5, break_when_any_done=False)["next", "truncated"][:, -1].all()
    tensor(True)

    Args:
        env_name: a name of ``GymnaxEnv.available_envs``.
        env_params: changes of the default parameters: ``{"max_steps_in_episode": 100}``.
        categorical_action_encoding, batch_size, device, state_in_data, jit: see :class:`GymnaxWrapper`.
        **kwargs: for :class:`steppe.EnvBase`; all others go to ``gymnax.make``.

    Raises:
        EnvNotFound: Gymnax has no such environment.
        NotSupported: the environment is broken in Gymnax.
        SpecError: the environment has no such parameter.
    """

    def __init__(
        self,
        env_name: str,
        *,
        env_params: Mapping[str, Any] | None = None,
        categorical_action_encoding: bool = True,
        batch_size: torch.Size | tuple[int, ...] | list[int] | int = (),
        device: torch.device | str | int | None = None,
        state_in_data: bool | None = None,
        jit: bool = True,
        **kwargs: Any,
    ) -> None:
        import gymnax
        from gymnax.registration import registered_envs

        if env_name not in registered_envs:
            raise env_not_found("gymnax", env_name)
        if env_name in BROKEN:
            raise NotSupported(f"Gymnax lists {env_name!r}, but cannot make it: {BROKEN[env_name]}.")
        base_kwargs = base_arguments(kwargs)
        env, params = gymnax.make(env_name, **kwargs)
        super().__init__(
            env,
            changed_params(env_name, params, env_params),
            categorical_action_encoding=categorical_action_encoding,
            batch_size=batch_size,
            device=device,
            state_in_data=state_in_data,
            jit=jit,
            **base_kwargs,
        )
        self.__dict__["env_name"] = env_name
