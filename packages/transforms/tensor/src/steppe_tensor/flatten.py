"""FlattenObservation: flatten adjacent dimensions."""

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

from .named import checked_dim

__all__ = ["FlattenObservation"]


class FlattenObservation(EntryTransform):
    """Flatten adjacent dimensions.

    ``FlattenObservation(-2, -1)`` makes ``[*B, 3, 20]`` of ``[*B, 3, 4, 5]``.

    >>> from steppe import FlattenObservation, TransformedEnv, make_env
    >>> chain = FlattenObservation(-3, -1, in_keys=["pixels"])
    >>> env = TransformedEnv(make_env("gym:CartPole-v1", from_pixels=True), chain)
    >>> env.observation_spec["pixels"].shape
    torch.Size([720000])

    Args:
        first_dim: the first dimension to flatten; negative.
        last_dim: the last dimension to flatten; negative.
        in_keys: entries to flatten. Default: ``["pixels"]``.
        out_keys: keys to write, as many as ``in_keys``. Default: ``in_keys``.
        allow_positive_dim: allow dimensions to count from the first one after the batch size of the environment.

    Raises:
        SpecError: a dimension is not negative or out of range, or ``first_dim`` comes after ``last_dim``.
    """

    def __init__(
        self,
        first_dim: int,
        last_dim: int,
        in_keys: NestedKey | Sequence[NestedKey] | None = None,
        out_keys: NestedKey | Sequence[NestedKey] | None = None,
        allow_positive_dim: bool = False,
    ) -> None:
        super().__init__(["pixels"] if in_keys is None else in_keys, out_keys)
        self.given_dims = (
            checked_dim("FlattenObservation", "first_dim", first_dim, allow_positive_dim),
            checked_dim("FlattenObservation", "last_dim", last_dim, allow_positive_dim),
        )

    @property
    def first_dim(self) -> int:
        """The first dimension.

        If the argument is not negative, the batch dimensions of the environment are added.
        """
        return self._behind_batch(self.given_dims[0])

    @property
    def last_dim(self) -> int:
        """The last dimension.

        If the argument is not negative, the batch dimensions of the environment are added.
        """
        return self._behind_batch(self.given_dims[1])

    def _behind_batch(self, dim: int) -> int:
        if dim < 0:
            return dim
        env = self.parent
        return dim + (0 if env is None else len(env.batch_size))

    def _apply_transform(self, value: torch.Tensor) -> torch.Tensor:
        return value.flatten(self.first_dim, self.last_dim)

    def row_kernel(self, source: Any, target: Any) -> Any:
        return partial(np.copyto, target, source.reshape(target.shape))

    def transform_leaf(self, leaf: Spec, batch_dims: int) -> Spec:
        ndim = leaf.ndim - batch_dims
        first, last = self.given_dims
        if not (-ndim <= first < ndim and -ndim <= last < ndim and first % ndim <= last % ndim):
            raise SpecError(
                f"FlattenObservation: first_dim={first} and last_dim={last} are not a valid range for an entry of "
                f"shape {tuple(leaf.shape[batch_dims:])}; pass {-ndim} <= first_dim <= last_dim <= -1."
            )
        return leaf.flatten(*(dim if dim < 0 else dim + batch_dims for dim in (first, last)))

    def shared_key(self) -> Any:
        return (type(self), self.given_dims, self.given_keys()) if max(self.given_dims) < 0 else None

    def _repr_keys(self) -> Any:
        return ("given_dims", "in_keys", "out_keys")
