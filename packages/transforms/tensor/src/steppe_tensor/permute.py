"""PermuteTransform: permute dimensions."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from tensordict import NestedKey

from steppe.errors import SpecError
from steppe.specs import Spec
from steppe.transforms import EntryTransform

from .named import some_keys

__all__ = ["PermuteTransform"]


class PermuteTransform(EntryTransform):
    """Permute the last dimensions.

    ``(-1, -3, -2)`` makes ``[*B, C, H, W]`` of ``[*B, H, W, C]``. The inverse restores their order in the entries that
    the caller writes.

    >>> from steppe import PermuteTransform, TransformedEnv, make_env
    >>> chain = PermuteTransform((-1, -3, -2), in_keys=["pixels"])
    >>> env = TransformedEnv(make_env("gym:CartPole-v1", from_pixels=True), chain)
    >>> env.observation_spec["pixels"].shape
    torch.Size([3, 400, 600])

    Args:
        dims: the last n dimensions, ``-n`` to ``-1``, in their new order.
        in_keys: observations, rewards and done entries.
        out_keys: keys to write, as many as ``in_keys``. Default: ``in_keys``.
        in_keys_inv: actions and states that the environment reads.
        out_keys_inv: keys that the caller writes instead. Default: ``in_keys_inv``.

    Raises:
        SpecError: ``dims`` is not a permutation, an entry has fewer dimensions, or no keys were passed.
    """

    invertible = True

    def __init__(
        self,
        dims: Sequence[int],
        in_keys: NestedKey | Sequence[NestedKey] | None = None,
        out_keys: NestedKey | Sequence[NestedKey] | None = None,
        in_keys_inv: NestedKey | Sequence[NestedKey] | None = None,
        out_keys_inv: NestedKey | Sequence[NestedKey] | None = None,
    ) -> None:
        super().__init__(in_keys, out_keys, in_keys_inv, out_keys_inv)
        dims = list(dims)
        if not dims or sorted(dims) != list(range(-len(dims), 0)):
            raise SpecError(
                f"PermuteTransform: dims must be a permutation of the last dimensions like (-1, -3, -2); found {dims}."
            )
        some_keys("PermuteTransform", in_keys, in_keys_inv)
        self.dims = dims
        # The inverse permutation.
        self._back = [dims.index(dim) - len(dims) for dim in range(-len(dims), 0)]

    def _apply_transform(self, value: torch.Tensor) -> torch.Tensor:
        return _permuted(value, self.dims)

    def _inv_apply_transform(self, value: torch.Tensor) -> torch.Tensor:
        return _permuted(value, self._back)

    def row_kernel(self, source: Any, target: Any) -> Any:
        order = (*range(source.ndim - len(self.dims)), *(dim + source.ndim for dim in self.dims))
        return partial(np.copyto, target, source.transpose(order))

    def transform_leaf(self, leaf: Spec, batch_dims: int) -> Spec:
        if leaf.ndim - batch_dims < len(self.dims):
            raise SpecError(
                f"PermuteTransform: an entry of shape {tuple(leaf.shape[batch_dims:])} has fewer than the "
                f"{len(self.dims)} dimensions of dims={self.dims}."
            )
        order = (*range(leaf.ndim - len(self.dims)), *self.dims)
        return leaf.permute(*order)  # type: ignore[attr-defined, no-any-return]

    def shared_key(self) -> Any:
        return (type(self), tuple(self.dims), self.given_keys())

    def _repr_keys(self) -> Any:
        return ("dims", *super()._repr_keys())


def _permuted(value: torch.Tensor, dims: list[int]) -> torch.Tensor:
    return value.permute(*range(value.ndim - len(dims)), *dims)
