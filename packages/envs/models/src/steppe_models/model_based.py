"""ModelBasedEnvBase: environments whose dynamics are a world model."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import torch
from tensordict import TensorDictBase
from torch import nn

from steppe.envs import EnvBase
from steppe.errors import SpecError
from steppe.specs import CPU, SPEC_KINDS

if TYPE_CHECKING:
    from tensordict.nn import TensorDictModuleBase

__all__ = ["ModelBasedEnvBase"]


class ModelBasedEnvBase(EnvBase):
    """Base class of environments whose step is one call of a world model.

    They accept data of any batch size. A subclass sets the specs, or copies them from the real environment with
    :meth:`set_specs_from_env`, and writes ``_reset``, which returns the first data of imagined episodes. Gradients flow
    through steps and rollouts.

    Args:
        world_model: a TensorDictModule. It reads observations, state and action at the root, and writes observations,
            reward and, if episodes can end, done entries at the root of its output. Done entries that it does not write
            are False.
        params: parameters that replace those of the world model, as a TensorDict made by ``TensorDict.from_module``.
        buffers: buffers that replace those of the world model, in the same form.
        device: see :class:`EnvBase`.
        batch_size: see :class:`EnvBase`.
        run_type_checks: see :class:`EnvBase`.
        allow_done_after_reset: see :class:`EnvBase`.
        **kwargs: for :class:`EnvBase`.

    Examples:
        >>> from tensordict.nn import TensorDictModule, TensorDictSequential
        >>> dynamics = TensorDictModule(lambda x, u: x + u, in_keys=["x", "action"], out_keys=["x"])
        >>> reward = TensorDictModule(lambda x: -x.square(), in_keys=["x"], out_keys=["reward"])
        >>> model = TensorDictSequential(dynamics, reward)
    """

    _batch_locked = False

    def __init__(
        self,
        world_model: TensorDictModuleBase,
        params: Any = None,
        buffers: Any = None,
        device: torch.device | str | int | None = None,
        batch_size: torch.Size | tuple[int, ...] | list[int] | int | None = None,
        run_type_checks: bool = False,
        allow_done_after_reset: bool = False,
        **kwargs: Any,
    ) -> None:
        if not isinstance(world_model, nn.Module):
            raise SpecError(
                f"{type(self).__name__}: world_model must be a TensorDictModule, found {type(world_model).__name__}."
            )
        super().__init__(
            device=device,
            batch_size=batch_size,
            run_type_checks=run_type_checks,
            allow_done_after_reset=allow_done_after_reset,
            **kwargs,
        )
        self.world_model = world_model if device is None else world_model.to(device)
        # Only the parameters of the world model are parameters of this module.
        object.__setattr__(self, "world_model_params", params)
        object.__setattr__(self, "world_model_buffers", buffers)

    def set_specs_from_env(self, env: EnvBase) -> ModelBasedEnvBase:
        """Copy the specs of another environment to this one's device.

        Returns this environment.
        """
        for kind in SPEC_KINDS:
            spec = getattr(env, f"full_{kind}_spec").clone()
            self.assign_spec(kind, spec if self.device is None else spec.to(self.device))
        return self

    def _step(self, tensordict: TensorDictBase) -> TensorDictBase:
        data = tensordict.copy()
        with self._instead(self.world_model_params), self._instead(self.world_model_buffers):
            data = self.world_model(data)
        # If the model does not write an entry, it still has the value of the root instead of a prediction.
        written = [
            key
            for key in (*self.observation_keys, *self.state_keys, *self.reward_keys, *self.done_keys)
            if data.get(key, None) is not None and data.get(key) is not tensordict.get(key, None)
        ]
        missing = [key for key in (*self.observation_keys, *self.reward_keys) if key not in written]
        if missing:
            raise SpecError(
                f"{type(self).__name__}: the world model does not write {missing}, which the specs have. It writes "
                f"{written}. Add the keys to its out_keys, or drop them from the specs."
            )
        following: TensorDictBase = data.select(*written)
        for key in self.full_done_spec.keys(include_nested=True, leaves_only=True):
            if following.get(key, None) is None and not any(k in written for k in self.done_keys):
                leaf = self.full_done_spec[key]
                shape = (*tensordict.batch_size, *leaf.shape[len(self.batch_size) :])
                following.set(key, torch.zeros(shape, dtype=torch.bool, device=leaf.device or CPU))
        return following

    def _instead(self, tensors: Any) -> Any:
        """Return a context that replaces parameters or buffers of the world model."""
        return nullcontext() if tensors is None else tensors.to_module(self.world_model)

    def _set_seed(self, seed: int | None) -> None:
        """Seed torch's global generator, from which the world model draws."""
        if seed is not None:
            torch.manual_seed(seed)
