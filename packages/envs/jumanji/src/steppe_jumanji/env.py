"""JumanjiEnv: environments of Jumanji, as functions of their data or in batches."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch
from tensordict import TensorDictBase

from steppe.envs import base_arguments
from steppe.registry import AvailableEnvs, env_not_found
from steppe_jax import EnvFunctions, JaxEnv, Outcome, check_single, leaf_paths

from .masks import MaskedChoice
from .names import env_names
from .specs import action_spec, observation_specs

__all__ = ["JumanjiEnv", "JumanjiWrapper"]

_MASK = "action_mask"


class JumanjiWrapper(JaxEnv):
    """An environment of Jumanji, ``jumanji.make(...)``, as a function of its data or a batch.

    ========================  =========================================================================================
    Key                       What, for a batch ``[*B]``
    ========================  =========================================================================================
    ``name``                  ``[*B, ...]``, a part of the observation, in the dtype that Jumanji gives; parts of parts
                              below it; ``"observation"`` where there is but one array
    ``"action_mask"``         ``[*B, n]`` bool, which actions there are; ``[*B, parts, n]`` for actions of several
                              parts, or ``[*B, n1, n2, ...]``, which combinations there are
    ``"action"``              ``[*B]`` or ``[*B, parts]`` int64 numbers; one-hot rows without
                              ``categorical_action_encoding``
    ``"reward"``              ``[*B, 1]`` float32, ``[*B, k]`` where k agents have their own
    ``"done"``                ``[*B, 1]`` bool, with ``"terminated"`` and ``"truncated"`` (a last step whose discount is
                              not 0)
    ``("state", ...)``        the state of Jumanji, with ``state_in_data``; without, ``env.jax_state`` is it
    ========================  =========================================================================================

    Random actions (``rand_action``, ``rollout`` without a policy) keep to the mask in the data, in a batch of several
    such environments (``ParallelEnv``) too.

    Attributes that this class lacks (``num_rows``, ``time_limit``, ...) are looked up on the environment.

    Args:
        env: the environment, without wrappers that make a batch of it or reset it.
        categorical_action_encoding: choices are numbers, not one-hot rows.
        batch_size: how many environments there are; ``()`` for a function of the data, of any batch size.
        device: of the data.
        state_in_data: whether the state of Jumanji is in the data; by default without a batch size.
        jit: compile reset and step.
        **kwargs: for :class:`steppe.EnvBase`.

    Raises:
        NotSupported: the environment is wrapped in a batch, or resets itself.
    """

    git_url = "https://github.com/instadeepai/jumanji"
    libname = "jumanji"
    available_envs = AvailableEnvs(env_names)

    def __init__(
        self,
        env: Any,
        *,
        categorical_action_encoding: bool = True,
        batch_size: Any = (),
        device: Any = None,
        state_in_data: bool | None = None,
        jit: bool = True,
        **kwargs: Any,
    ) -> None:
        check_single(env, _OWN_ROWS, wrapper="JumanjiWrapper")
        native = env.action_spec
        _, first = jax.eval_shape(env.reset, jax.random.PRNGKey(0))
        super().__init__(
            EnvFunctions(*_functions(env), jax.ShapeDtypeStruct(tuple(native.shape), native.dtype)),
            action_spec=action_spec(native, categorical=categorical_action_encoding),
            observation_specs=observation_specs(env, leaf_paths(first.observation)),
            batch_size=batch_size,
            device=device,
            state_in_data=state_in_data,
            jit=jit,
            **kwargs,
        )
        self.wrap_library(env)
        self.__dict__["_choice"] = self._masked_choice(native)

    def _masked_choice(self, native: Any) -> MaskedChoice | None:
        sizes = getattr(native, "num_values", None)
        if _MASK not in self.observation_keys or sizes is None:
            return None
        shape = self.full_observation_spec[_MASK].shape[len(self.batch_size) :]
        return MaskedChoice(np.asarray(sizes).reshape(-1).tolist(), np.ndim(sizes) == 0, shape)

    @property
    def lib(self) -> Any:
        """The module ``jumanji``."""
        import jumanji

        return jumanji

    def rand_action(self, tensordict: TensorDictBase | None = None) -> TensorDictBase:
        """Write random actions that the mask in ``tensordict`` allows, any where it holds none."""
        mask = tensordict.get(_MASK, None) if tensordict is not None else None
        if mask is None or self._choice is None:
            return super().rand_action(tensordict)
        assert tensordict is not None
        action = self._choice.draw(mask, self.base_state.generator)
        if self.one_hot_sizes is not None:
            parts = action.unsqueeze(-1) if self._choice.single else action
            hot = [
                torch.nn.functional.one_hot(part, size)
                for part, size in zip(parts.unbind(-1), self.one_hot_sizes, strict=True)
            ]
            action = torch.cat(hot, -1)
        return tensordict.set(self.action_entry, action.to(self.action_spec.dtype))

    def render(self, tensordict: TensorDictBase | None = None, row: int = 0) -> Any:
        """Draw one environment with the viewer of Jumanji.

        Args:
            tensordict: data with the state; none where the state is kept in the environment.
            row: which of a batch.

        Returns:
            What ``env.render(state)`` of Jumanji returns.
        """
        return self._env.render(self.native_state(tensordict, row))


class JumanjiEnv(JumanjiWrapper):
    """Makes an environment of Jumanji by its name and wraps it; see :class:`JumanjiWrapper` for the data.

    Args:
        env_name: a name of ``JumanjiEnv.available_envs``.
        categorical_action_encoding, batch_size, device, state_in_data, jit: see :class:`JumanjiWrapper`.
        **kwargs: for :class:`steppe.EnvBase`, and all others for ``jumanji.make`` (``num_rows=6``, ``generator=...``).

    Raises:
        EnvNotFound: Jumanji has no such environment.
    """

    def __init__(
        self,
        env_name: str,
        *,
        categorical_action_encoding: bool = True,
        batch_size: Any = (),
        device: Any = None,
        state_in_data: bool | None = None,
        jit: bool = True,
        **kwargs: Any,
    ) -> None:
        import jumanji

        if env_name not in env_names():
            raise env_not_found("jumanji", env_name)
        own = base_arguments(kwargs)
        super().__init__(
            jumanji.make(env_name, **kwargs),
            categorical_action_encoding=categorical_action_encoding,
            batch_size=batch_size,
            device=device,
            state_in_data=state_in_data,
            jit=jit,
            **own,
        )
        self.__dict__["env_name"] = env_name

    def __repr__(self) -> str:
        return f"JumanjiEnv({self.env_name!r}, batch_size={tuple(self.batch_size)})"


_OWN_ROWS = ("VmapWrapper", "AutoResetWrapper", "VmapAutoResetWrapper")


def _functions(env: Any) -> tuple[Any, Any]:
    """Reset and step of one environment."""

    def outcome(state: Any, timestep: Any) -> tuple[Any, Outcome]:
        last = timestep.step_type == 2
        terminated = last & jnp.all(timestep.discount == 0)
        return state, Outcome(timestep.observation, timestep.reward, terminated, last & ~terminated)

    return lambda key: outcome(*env.reset(key)), lambda state, action: outcome(*env.step(state, action))
