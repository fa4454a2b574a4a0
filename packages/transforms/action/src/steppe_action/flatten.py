"""FlattenAction: flatten dimensions of an action."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from tensordict import NestedKey, TensorDictBase

from steppe.errors import SpecError
from steppe.specs import Spec
from steppe.transforms import EnvSpecs, Hooks

from .inverse import ActionInverse

__all__ = ["FlattenAction"]


class FlattenAction(ActionInverse):
    """Flatten the dimensions ``first_dim`` to ``last_dim`` of an action.

    The actions that the caller writes are unflattened for the environment. Called on stored data, it flattens actions
    of the environment.

    >>> from steppe import Bounded, FlattenAction, TransformedEnv, Unbounded
    >>> from steppe_testing import DataEnv
    >>> base = DataEnv({"observation": Unbounded((3,))}, action=Bounded(-1, 1, (2, 3)))
    >>> TransformedEnv(base, FlattenAction()).rollout(4)["action"].shape
    torch.Size([4, 6])

    Args:
        first_dim: first dimension to flatten; negative.
        last_dim: last dimension to flatten; negative.
        in_keys_inv: actions of the environment. Default: ``["action"]``.
        out_keys_inv: keys that the caller writes. Default: ``in_keys_inv``.
        in_keys: actions in stored data. Default: ``in_keys_inv``.
        out_keys: keys of the flattened actions in stored data. Default: ``in_keys``.
        allow_positive_dim: allow dimensions to count from the first one after the batch size of the environment.
        action_shape: sizes of the flattened dimensions, for ``inv`` on stored data without an environment.

    Raises:
        SpecError: a dimension is not negative, ``first_dim`` comes after ``last_dim``, or an action lacks one of them.
    """

    invertible = True

    def __init__(
        self,
        first_dim: int = -2,
        last_dim: int = -1,
        in_keys_inv: NestedKey | Sequence[NestedKey] | None = None,
        out_keys_inv: NestedKey | Sequence[NestedKey] | None = None,
        in_keys: NestedKey | Sequence[NestedKey] | None = None,
        out_keys: NestedKey | Sequence[NestedKey] | None = None,
        allow_positive_dim: bool = False,
        *,
        action_shape: Sequence[int] | None = None,
    ) -> None:
        for name, dim in (("first_dim", first_dim), ("last_dim", last_dim)):
            if dim >= 0 and not allow_positive_dim:
                raise SpecError(
                    f"FlattenAction: {name} must be negative, because batches add dimensions in front; found {dim}. "
                    "allow_positive_dim=True counts from the first dimension of one action."
                )
        if (first_dim < 0) == (last_dim < 0) and first_dim > last_dim:
            raise SpecError(f"FlattenAction: first_dim must be <= last_dim, found {first_dim} and {last_dim}.")
        keys = ["action"] if in_keys_inv is None else in_keys_inv
        super().__init__(keys if in_keys is None else in_keys, out_keys, keys, out_keys_inv)
        self.first_dim, self.last_dim = first_dim, last_dim
        self.allow_positive_dim = bool(allow_positive_dim)
        sizes = None if action_shape is None else tuple(int(n) for n in action_shape)
        #: For each action, the sizes of the flattened dimensions and the number of dimensions after them.
        self._spans = {} if sizes is None else dict.fromkeys(self.in_keys_inv, (sizes, -last_dim - 1))

    def shared_key(self) -> Any:
        return (type(self), self.first_dim, self.last_dim, tuple(self.in_keys_inv), tuple(self.out_keys_inv))

    def _dims(self, dims: int, leaf: Any) -> tuple[int, int]:
        """Return both dimensions as negative numbers, for an action with ``dims`` of them."""
        first, last = (dim - dims if dim >= 0 else dim for dim in (self.first_dim, self.last_dim))
        if first < -dims or last > -1 or first > last:
            raise SpecError(
                f"FlattenAction({self.first_dim}, {self.last_dim}): the action has {dims} dimensions after the batch "
                f"size; its spec is {leaf}."
            )
        return first, last

    def transform_specs(self, specs: EnvSpecs) -> EnvSpecs:
        batch_dims = len(specs.batch_size)
        for key in self.in_keys_inv:
            leaf = self.action_leaf(specs, key)
            first, last = self._dims(leaf.ndim - batch_dims, leaf)
            shape = tuple(leaf.shape)
            self._spans[key] = (shape[len(shape) + first : len(shape) + last + 1], -last - 1)
        return super().transform_specs(specs)

    def caller_spec(self, leaf: Spec, batch_dims: int) -> Spec:
        first, last = self._dims(leaf.ndim - batch_dims, leaf)
        return leaf.flatten(leaf.ndim + first, leaf.ndim + last)

    def hooks(self, specs: EnvSpecs) -> Hooks:
        hooks = super().hooks(specs)
        if len({self._spans.get(key, ()) for key in self.in_keys_inv}) <= 1:
            return hooks
        # Actions of several shapes can only be unflattened by key.
        return Hooks(inverse=self._inv_call)

    def _apply_transform(self, value: torch.Tensor) -> torch.Tensor:
        return value.flatten(self.first_dim, self.last_dim)

    def _inv_apply_transform(self, value: torch.Tensor) -> torch.Tensor:
        spans = set(self._spans.values())
        if len(spans) > 1:
            raise SpecError(
                "FlattenAction: its actions have several shapes, so a tensor needs its key: call inv(tensordict)."
            )
        return self._unflat(value, next(iter(spans), None))

    def _inv_call(self, tensordict: TensorDictBase) -> TensorDictBase:
        for key, out_key in zip(self.in_keys_inv, self.out_keys_inv, strict=True):
            value = tensordict.get(out_key, None)
            if value is not None:
                tensordict.set(key, self._unflat(value, self._spans.get(key)))
            elif not self.missing_tolerance:
                raise KeyError(
                    f"FlattenAction: the data has no action {out_key!r}. It has "
                    f"{sorted(map(str, tensordict.keys(include_nested=True, leaves_only=True)))}."
                )
        return tensordict

    @staticmethod
    def _unflat(value: torch.Tensor, span: Any) -> torch.Tensor:
        if span is None:
            raise SpecError(
                "FlattenAction: the shape of the action is not known outside an environment. Pass action_shape=(...)."
            )
        sizes, behind = span
        apart: torch.Tensor = value.unflatten(-1 - behind, sizes)  # type: ignore[no-untyped-call]
        return apart

    def inverse_kernel(self, leaf: Spec) -> Any:
        shape = tuple(leaf.shape)
        return lambda action: action.reshape(shape)

    writes_step = False

    def _repr_keys(self) -> Any:
        return ("first_dim", "last_dim", "in_keys_inv", "out_keys_inv")
