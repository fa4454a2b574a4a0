"""CraftaxEnv: the environments of Craftax."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from steppe.envs import base_arguments
from steppe.registry import AvailableEnvs, env_not_found
from steppe_gymnax import GymnaxWrapper, changed_params

from .names import env_names

__all__ = ["CraftaxEnv"]


class CraftaxEnv(GymnaxWrapper):
    """Make an environment of Craftax by its name.

    ====================  =============================================================================================
    Key                   Value, for a batch ``[*B]``
    ====================  =============================================================================================
    ``"observation"``     ``[*B, k]`` float32 symbols, or ``[*B, height, width, 3]`` float32 pixels
    ``"action"``          ``[*B]`` int64; one-hot rows with ``categorical_action_encoding=False``
    ``"reward"``          ``[*B, 1]`` float32
    ``"done"``            ``[*B, 1]`` bool, with ``"terminated"`` (death, or victory) and ``"truncated"`` (after
                          ``max_timesteps``)
    ``("state", ...)``    the state of Craftax and a random key, with ``state_in_data``; otherwise see
                          ``env.jax_state``
    ====================  =============================================================================================

    >>> from steppe_craftax import CraftaxEnv
    >>> env = CraftaxEnv("Craftax-Classic-Symbolic-v1", batch_size=2)
    >>> env.observation_spec["observation"].shape
    torch.Size([2, 1345])

    Args:
        env_name: ``"Craftax-Symbolic-v1"``, ``"Craftax-Pixels-v1"``, or one of these with ``Craftax-Classic``.
        env_params: changes of the default parameters: ``{"max_timesteps": 500}``.
        static_env_params: the sizes of the world, ``StaticEnvParams`` of Craftax. ``None``: its defaults.
        categorical_action_encoding, batch_size, device, state_in_data, jit: see
            :class:`steppe_gymnax.GymnaxWrapper`.
        **kwargs: for :class:`steppe.EnvBase`.

    Raises:
        EnvNotFound: Craftax has no such environment.
        SpecError: the environment has no such parameter.
    """

    git_url = "https://github.com/MichaelTMatthews/Craftax"
    libname = "craftax"
    available_envs = AvailableEnvs(env_names)

    def __init__(
        self,
        env_name: str,
        *,
        env_params: Mapping[str, Any] | None = None,
        static_env_params: Any = None,
        categorical_action_encoding: bool = True,
        batch_size: torch.Size | tuple[int, ...] | list[int] | int = (),
        device: torch.device | str | int | None = None,
        state_in_data: bool | None = None,
        jit: bool = True,
        **kwargs: Any,
    ) -> None:
        if env_name not in env_names():
            raise env_not_found("craftax", env_name, names=env_names())
        base_kwargs = base_arguments(kwargs)
        if kwargs:
            raise TypeError(f"CraftaxEnv does not take {sorted(kwargs)}. Parameters are passed in env_params={{...}}.")
        from craftax.craftax_env import make_craftax_env_from_name

        env = make_craftax_env_from_name(env_name, auto_reset=False)
        if static_env_params is not None:
            env = type(env)(static_env_params)
        super().__init__(
            env,
            changed_params(env_name, env.default_params, env_params),
            categorical_action_encoding=categorical_action_encoding,
            batch_size=batch_size,
            device=device,
            state_in_data=state_in_data,
            jit=jit,
            **base_kwargs,
        )
        self.__dict__["env_name"] = env_name
