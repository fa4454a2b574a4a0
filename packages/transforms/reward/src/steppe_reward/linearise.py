"""LineariseRewards: scalarize rewards of several objectives."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from tensordict import NestedKey

from steppe.errors import SpecError
from steppe.specs import CPU, Bounded, Spec, Unbounded
from steppe.transforms import EntryTransform

__all__ = ["LineariseRewards"]


class LineariseRewards(EntryTransform):
    """Compute the weighted sum of the objectives of a reward.

    ``[*B, n]`` becomes ``[*B, 1]``. The dtype stays the same. The bounds of a bounded reward become their weighted
    sums.

    >>> from steppe import LineariseRewards, TransformedEnv, make_env
    >>> env = TransformedEnv(make_env("mo-gym:deep-sea-treasure-v0"), LineariseRewards(weights=[1.0, 0.1]))
    >>> env.rollout(3)["next", "reward"].shape
    torch.Size([3, 1])

    Args:
        in_keys: rewards of several objectives. Default: all rewards of the environment.
        out_keys: keys of the sums, as many as ``in_keys``. Default: ``in_keys``.
        weights: n numbers, the same for each of ``in_keys``. Default: ones. New weights can be assigned to the
            attribute; they apply from the next step on.

    Raises:
        SpecError: the weights are not a vector with one weight for each objective, or a reward is of integers or has no
            dimension of objectives.
    """

    of_rewards = True
    _weights: torch.Tensor | None = None

    def __init__(
        self,
        in_keys: NestedKey | Sequence[NestedKey] | None = None,
        out_keys: NestedKey | Sequence[NestedKey] | None = None,
        *,
        weights: Sequence[float] | torch.Tensor | None = None,
    ) -> None:
        super().__init__(in_keys, out_keys)
        self.weights = weights

    @property
    def weights(self) -> torch.Tensor | None:
        """The weights, float64 of shape ``[n]``; None for ones."""
        return self._weights

    @weights.setter
    def weights(self, values: Any) -> None:
        weights = None
        if values is not None:
            try:
                weights = torch.as_tensor(values, device=CPU).detach().to(torch.float64, copy=True)
            except (TypeError, ValueError, RuntimeError):
                raise SpecError(f"LineariseRewards: weights must be a list of numbers, found {values!r}.") from None
            if weights.ndim > 1:
                raise SpecError(
                    f"LineariseRewards: weights must be a vector, one for each objective; found a tensor of shape "
                    f"{tuple(weights.shape)}. For other weights in each group use several LineariseRewards."
                )
            weights = weights.reshape(-1)
        self._weights = weights
        self._cast: dict[Any, torch.Tensor] = {}
        self.empty_cache()

    def _apply_transform(self, value: torch.Tensor) -> torch.Tensor:
        if self.weights is not None:
            weights = self._cast_weights(value)
            if weights.shape != value.shape[-1:]:
                raise self._wrong_number(value.shape)
            value = weights * value
        # In the same order as the row kernel, because the order of additions decides the last bit.
        parts: tuple[torch.Tensor, ...] = value.split(1, -1)  # type: ignore[no-untyped-call]
        total, *others = parts
        for other in others:
            total = total + other
        return total if others else total.clone()

    def row_kernel(self, source: Any, target: Any) -> Any:
        weights = None if self.weights is None else self.weights.numpy().astype(source.dtype)
        if source.shape[-1] == 0:
            return None
        weighted = np.empty_like(source)
        parts = [weighted[..., i : i + 1] for i in range(source.shape[-1])]

        def add() -> None:
            if weights is None:
                np.copyto(weighted, source)
            else:
                np.multiply(source, weights, out=weighted)
            np.copyto(target, parts[0])
            for part in parts[1:]:
                np.add(target, part, out=target)

        return add

    def _cast_weights(self, value: torch.Tensor) -> torch.Tensor:
        """Return the weights in the dtype and on the device of a value."""
        cast: dict[Any, torch.Tensor] = self._cast
        dtype_and_device = (value.dtype, value.device)
        if dtype_and_device not in cast:
            assert self.weights is not None
            cast[dtype_and_device] = self.weights.to(value.device, value.dtype)
        return cast[dtype_and_device]

    def _wrong_number(self, shape: Any) -> SpecError:
        weights = self.weights
        return SpecError(
            f"LineariseRewards: {0 if weights is None else weights.numel()} weights for a reward of shape "
            f"{tuple(shape)}; pass {shape[-1]}, one for each objective."
        )

    def transform_leaf(self, leaf: Spec, batch_dims: int) -> Spec:
        if leaf.ndim <= batch_dims:
            raise SpecError("LineariseRewards: the reward is a scalar, without a dimension of objectives.")
        if leaf.dtype is None or not leaf.dtype.is_floating_point:
            raise SpecError(
                f"LineariseRewards: the reward is of {leaf.dtype}, and weighted sums are not integers. Cast it "
                f"first: DTypeCastTransform({leaf.dtype}, torch.float32)."
            )
        n = leaf.shape[-1]
        if self.weights is not None and self.weights.numel() != n:
            raise self._wrong_number(leaf.shape)
        shape = (*leaf.shape[:-1], 1)
        if isinstance(leaf, Unbounded):
            return Unbounded(shape, device=leaf.device, dtype=leaf.dtype)
        low, high = leaf.bounds()
        weights = torch.ones_like(low) if self.weights is None else self._cast_weights(low).expand_as(low)
        # Zero weights are a separate case, because an infinite bound times 0 is NaN.
        up, down, zero = weights > 0, weights < 0, torch.zeros_like(low)
        least = torch.where(up, weights * low, torch.where(down, weights * high, zero)).sum(-1, keepdim=True)
        most = torch.where(up, weights * high, torch.where(down, weights * low, zero)).sum(-1, keepdim=True)
        return Bounded(least, most, shape=shape, device=leaf.device, dtype=leaf.dtype)

    def shared_key(self) -> Any:
        weights = self.weights
        return (type(self), None if weights is None else tuple(weights.tolist()), self.given_keys())
