"""BatchSizeTransform: change the batch size of an environment."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from tensordict import TensorDict, TensorDictBase

from steppe.errors import SpecError
from steppe.specs import SPEC_KINDS, Composite
from steppe.transforms import EnvSpecs, Hooks, PlannedTransform

__all__ = ["BatchSizeTransform"]


class BatchSizeTransform(PlannedTransform):
    """Change the batch size of an environment.

    ``batch_size`` sets a fixed batch size for an environment that accepts data of any batch size, for rollouts and
    collectors. ``reshape_fn`` changes the shape of a batch: ``lambda data: data.reshape(-1)``.

    >>> from steppe import BatchSizeTransform, SerialEnv, TransformedEnv
    >>> grid = SerialEnv(2, lambda: SerialEnv(3, "gym:CartPole-v1"))
    >>> env = TransformedEnv(grid, BatchSizeTransform(reshape_fn=lambda data: data.reshape(-1)))
    >>> grid.batch_size, env.rollout(4, break_when_any_done=False).shape
    (torch.Size([2, 3]), torch.Size([6, 4]))

    Args:
        batch_size: the new batch size.
        reshape_fn: function that reshapes TensorDicts and Composites and keeps the number of rows.
        reset_func: with ``batch_size``: function of the argument of ``reset`` and of the fresh data that returns data
            of the new batch size, if the environment does not.
        env_kwarg: pass the transformed environment to ``reset_func`` as ``env``.

    Raises:
        SpecError: both or none of ``batch_size`` and ``reshape_fn`` are passed, or the environment has a batch size
            already and ``batch_size`` is passed.
    """

    def __init__(
        self,
        batch_size: Sequence[int] | None = None,
        *,
        reshape_fn: Callable[..., TensorDictBase | Composite] | None = None,
        reset_func: Callable[..., TensorDictBase] | None = None,
        env_kwarg: bool = False,
    ) -> None:
        super().__init__()
        if (batch_size is None) == (reshape_fn is None):
            raise SpecError("BatchSizeTransform: pass either batch_size or reshape_fn.")
        self.batch_size = None if batch_size is None else torch.Size(batch_size)
        self.reshape_fn: Any = reshape_fn
        self.reset_func = reset_func
        self.env_kwarg = env_kwarg

    def transform_env_batch_size(self, batch_size: torch.Size) -> torch.Size:
        if self.reshape_fn is not None:
            size: torch.Size = self.reshape_fn(TensorDict({}, batch_size=batch_size)).batch_size
            if size.numel() != batch_size.numel():
                raise SpecError(
                    f"BatchSizeTransform: reshape_fn must keep the number of rows, found {tuple(size)} for "
                    f"{tuple(batch_size)}."
                )
            return size
        assert self.batch_size is not None
        if len(batch_size):
            raise SpecError(
                f"BatchSizeTransform(batch_size=...) needs an environment without a batch size, found "
                f"{tuple(batch_size)}. Use reshape_fn instead."
            )
        return self.batch_size

    def transform_specs(self, specs: EnvSpecs) -> EnvSpecs:
        size = self.transform_env_batch_size(specs.batch_size)

        def resized(spec: Composite) -> Composite:
            if self.reshape_fn is not None:
                result: Composite = self.reshape_fn(spec.clone())
                return result
            return spec.expand(torch.Size((*size, *spec.shape)))

        return specs.changed(**{kind: resized(getattr(specs, kind)) for kind in SPEC_KINDS}, batch_size=size)

    def hooks(self, specs: EnvSpecs) -> Hooks:
        size = self.transform_env_batch_size(specs.batch_size)
        if self.reshape_fn is None:
            return self._fixed(size, specs.device)
        inner, reshape = specs.batch_size, self.reshape_fn

        def outward(_: Any, data: TensorDictBase) -> TensorDictBase:
            result: TensorDictBase = reshape(data)
            return result

        def inward(data: TensorDictBase | None) -> Any:
            return None if data is None else data.reshape(inner)

        return Hooks(step=outward, reset=outward, inverse=inward, before_reset=inward, reads_root=False)

    def _fixed(self, size: torch.Size, device: torch.device | None) -> Hooks:
        def before(data: TensorDictBase | None) -> TensorDictBase:
            return TensorDict({}, batch_size=size, device=device) if data is None else data

        def reset(td: TensorDictBase | None, fresh: TensorDictBase) -> TensorDictBase:
            if self.reset_func is not None:
                env = {"env": self.container} if self.env_kwarg else {}
                fresh = self.reset_func(fresh.empty() if td is None else td, fresh, **env)
            return fresh if fresh.batch_size == size else fresh.expand(size).clone()

        return Hooks(reset=reset, before_reset=before)

    def forward(self, tensordict: TensorDictBase) -> TensorDictBase:
        """Reshape data that comes from no environment with ``reshape_fn``.

        Without ``reshape_fn``, return the data unchanged.
        """
        return tensordict if self.reshape_fn is None else self.reshape_fn(tensordict)

    def _repr_keys(self) -> Any:
        return ("batch_size", "reshape_fn")
