"""UnsqueezeTransform and SqueezeTransform: add and remove dimensions of size 1."""

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

from .named import checked_dim, some_keys

__all__ = ["SqueezeTransform", "UnsqueezeTransform"]


class UnsqueezeTransform(EntryTransform):
    """Insert a dimension of size 1.

    ``[*B, n]`` becomes ``[*B, 1, n]`` with ``dim=-2``. The inverse removes it from the entries that the caller writes.

    >>> from steppe import TransformedEnv, UnsqueezeTransform, make_env
    >>> env = TransformedEnv(make_env("gym:CartPole-v1"), UnsqueezeTransform(-1, in_keys=["observation"]))
    >>> env.reset()["observation"].shape
    torch.Size([4, 1])

    Args:
        dim: position of the dimension in the result; negative.
        allow_positive_dim: allow ``dim`` to count from the first dimension after the batch size of the environment.
        in_keys: observations, rewards and done entries.
        out_keys: keys to write, as many as ``in_keys``. Default: ``in_keys``.
        in_keys_inv: actions and states that the environment reads.
        out_keys_inv: keys that the caller writes instead. Default: ``in_keys_inv``.

    Raises:
        SpecError: ``dim`` is not negative or out of range, or there are no keys.
    """

    invertible = True

    def __init__(
        self,
        dim: int | None = None,
        *,
        allow_positive_dim: bool = False,
        in_keys: NestedKey | Sequence[NestedKey] | None = None,
        out_keys: NestedKey | Sequence[NestedKey] | None = None,
        in_keys_inv: NestedKey | Sequence[NestedKey] | None = None,
        out_keys_inv: NestedKey | Sequence[NestedKey] | None = None,
    ) -> None:
        super().__init__(in_keys, out_keys, in_keys_inv, out_keys_inv)
        self.allow_positive_dim = allow_positive_dim
        self.given_dim = checked_dim(type(self).__name__, "dim", dim, allow_positive_dim)
        some_keys(type(self).__name__, in_keys, in_keys_inv)

    @property
    def dim(self) -> int:
        """The dimension.

        If the argument is not negative, the batch dimensions of the environment are added.
        """
        if self.given_dim < 0:
            return self.given_dim
        env = self.parent
        return self.given_dim + (0 if env is None else len(env.batch_size))

    @property
    def unsqueeze_dim(self) -> int:
        """Same as ``dim``."""
        return self.dim

    def _apply_transform(self, value: torch.Tensor) -> torch.Tensor:
        return value.unsqueeze(self.dim)

    def _inv_apply_transform(self, value: torch.Tensor) -> torch.Tensor:
        return value.squeeze(self.dim)

    def row_kernel(self, source: Any, target: Any) -> Any:
        return partial(np.copyto, target, source.reshape(target.shape))

    def transform_leaf(self, leaf: Spec, batch_dims: int) -> Spec:
        return leaf.unsqueeze(self._place(leaf, batch_dims, 1))

    def _place(self, leaf: Spec, batch_dims: int, more: int) -> int:
        ndim = leaf.ndim - batch_dims + more
        dim = self.given_dim
        if not -ndim <= dim < ndim:
            raise SpecError(
                f"{type(self).__name__}: dim={dim} is out of range for an entry of shape "
                f"{tuple(leaf.shape[batch_dims:])}; pass a dim from {-ndim} to -1."
            )
        return dim if dim < 0 else dim + batch_dims

    def shared_key(self) -> Any:
        # A dimension that is not negative changes its meaning if rows are added in front.
        return (type(self), self.given_dim, self.given_keys()) if self.given_dim < 0 else None

    def _repr_keys(self) -> Any:
        return ("given_dim", *super()._repr_keys())


class SqueezeTransform(UnsqueezeTransform):
    """Remove a dimension of size 1.

    ``[*B, 1, n]`` becomes ``[*B, n]`` with ``dim=-2``. A dimension of another size stays. The inverse inserts the
    dimension into the entries that the caller writes.

    >>> from steppe import Compose, SqueezeTransform, TransformedEnv, UnsqueezeTransform, make_env
    >>> squeeze = SqueezeTransform(-1, in_keys=["observation"])
    >>> chain = Compose(UnsqueezeTransform(-1, in_keys=["observation"]), squeeze)
    >>> env = TransformedEnv(make_env("gym:CartPole-v1"), chain)
    >>> env.reset()["observation"].shape
    torch.Size([4])

    Args:
        dim: the dimension; negative.
        allow_positive_dim: allow ``dim`` to count from the first dimension after the batch size of the environment.
        in_keys: observations, rewards and done entries.
        out_keys: keys to write, as many as ``in_keys``. Default: ``in_keys``.
        in_keys_inv: actions and states that the environment reads.
        out_keys_inv: keys that the caller writes instead. Default: ``in_keys_inv``.

    Raises:
        SpecError: ``dim`` is not negative or out of range, there are no keys, or the size of an action or state in this
            dimension is not 1.
    """

    @property
    def squeeze_dim(self) -> int:
        """Same as ``dim``."""
        return self.dim

    row_kernel = UnsqueezeTransform.row_kernel
    # Assigned again, because a class that overrides the methods below loses the inherited shared_key.
    shared_key = UnsqueezeTransform.shared_key

    def _apply_transform(self, value: torch.Tensor) -> torch.Tensor:
        return value.squeeze(self.dim)

    def _inv_apply_transform(self, value: torch.Tensor) -> torch.Tensor:
        return value.unsqueeze(self.dim)

    def transform_leaf(self, leaf: Spec, batch_dims: int) -> Spec:
        return leaf.squeeze(self._place(leaf, batch_dims, 0))

    def transform_leaf_inv(self, leaf: Spec, batch_dims: int) -> Spec:
        place = self._place(leaf, batch_dims, 0)
        if leaf.shape[place] != 1:
            raise SpecError(
                f"SqueezeTransform: dimension {self.given_dim} of an entry of the environment does not have size 1, so "
                f"the caller cannot leave it out; the shape is {tuple(leaf.shape[batch_dims:])}."
            )
        return leaf.squeeze(place)
