"""Transforms of dtypes and devices."""

from __future__ import annotations

from typing import Any

import torch
from tensordict import TensorDictBase

from steppe.specs import Composite
from steppe.transforms.base import Transform
from steppe.transforms.compiled.hooks import EnvSpecs, Hooks, RowHooks, pair_hook

__all__ = ["DTypeCastTransform", "DoubleToFloat"]


class DTypeCastTransform(Transform):
    """Casts entries of one dtype to another, and back on the way to the environment.

    Args:
        dtype_in: dtype that the environment has.
        dtype_out: dtype that the caller sees.
        in_keys: observations and rewards to cast; by default all of ``dtype_in``, ``[]`` for none.
        out_keys: where they go; by default the same keys.
        in_keys_inv: actions and states to cast from ``dtype_out`` to ``dtype_in``; by default all of ``dtype_in``,
            ``[]`` for none.
        out_keys_inv: keys that the caller writes for them.
    """

    def __init__(
        self,
        dtype_in: torch.dtype,
        dtype_out: torch.dtype,
        in_keys: Any = None,
        out_keys: Any = None,
        in_keys_inv: Any = None,
        out_keys_inv: Any = None,
    ) -> None:
        super().__init__(in_keys, out_keys, in_keys_inv, out_keys_inv)
        self.dtype_in = dtype_in
        self.dtype_out = dtype_out
        self._all_out = in_keys is None
        self._all_in = in_keys_inv is None

    keeps_nothing = True

    def _apply_transform(self, value: torch.Tensor) -> torch.Tensor:
        return value.to(self.dtype_out)

    def _inv_apply_transform(self, value: torch.Tensor) -> torch.Tensor:
        return value.to(self.dtype_in)

    def _keys_of(self, *specs: Composite) -> list[tuple[Any, Any]]:
        return [
            (key, key)
            for spec in specs
            for key, leaf in spec.items(include_nested=True, leaves_only=True)
            if leaf is not None and leaf.dtype is self.dtype_in
        ]

    def _forward_keys(self, specs: EnvSpecs) -> list[tuple[Any, Any]]:
        return self._keys_of(specs.observation, specs.reward) if self._all_out else self._pairs

    def _inverse_keys(self, specs: EnvSpecs) -> list[tuple[Any, Any]]:
        return self._keys_of(specs.action, specs.state) if self._all_in else self._inverse_pairs

    def transform_specs(self, specs: EnvSpecs) -> EnvSpecs:
        specs = specs.copy()
        for pairs, kinds in (
            (self._forward_keys(specs), (specs.observation, specs.reward)),
            # An inverse reads what the caller writes, which is what the spec is to show.
            ([(b, a) for a, b in self._inverse_keys(specs)], (specs.action, specs.state)),
        ):
            for spec in kinds:
                for key, out_key in pairs:
                    leaf = spec.get(key, None)
                    if leaf is None:
                        continue
                    if kinds[0] is specs.action and out_key != key:
                        spec.pop(key)
                    spec.set(out_key, leaf.to(self.dtype_out))
        return specs

    def hooks(self, specs: EnvSpecs) -> Hooks:
        forward, inverse = self._forward_keys(specs), self._inverse_keys(specs)
        hooks = Hooks()
        if forward:
            run = pair_hook(forward, self._apply_transform, self._missing)
            tolerant = pair_hook(forward, self._apply_transform, None)
            hooks.step = lambda _, following: run(following)
            hooks.reset = lambda _, fresh: tolerant(fresh)
            hooks.reads_root = False
            hooks.pairs = forward
        if inverse:
            # States may be left out of the data: the environment says so itself where it needs them.
            hooks.inverse = pair_hook(inverse, self._inv_apply_transform, None)
            hooks.inverse_pairs = inverse
        hooks.rows = self._row_hooks(forward)
        return hooks

    def shared_key(self) -> Any:
        keys = (self.in_keys, self.out_keys, self.in_keys_inv, self.out_keys_inv)
        return (type(self), self.dtype_in, self.dtype_out, self._all_out, self._all_in, *map(tuple, keys))

    def _row_hooks(self, forward: list[tuple[Any, Any]]) -> RowHooks | None:
        # Of floats alone: numpy and torch cast what does not fit into whole numbers in their own ways.
        if not (self.dtype_in.is_floating_point and self.dtype_out.is_floating_point):
            return None
        if any(key != out_key for key, out_key in forward):
            return None
        return RowHooks(casts=[key for key, _ in forward])

    def _call(self, next_tensordict: TensorDictBase) -> TensorDictBase:
        pairs = self._pairs
        if self._all_out:
            pairs = [
                (key, key)
                for key, value in next_tensordict.items(include_nested=True, leaves_only=True)
                if value.dtype is self.dtype_in
            ]
        return pair_hook(pairs, self._apply_transform, self._missing)(next_tensordict)

    def _inv_call(self, tensordict: TensorDictBase) -> TensorDictBase:
        pairs = self._inverse_pairs
        if self._all_in:
            pairs = [
                (key, key)
                for key, value in tensordict.items(include_nested=True, leaves_only=True)
                if value.dtype is self.dtype_out
            ]
        return pair_hook(pairs, self._inv_apply_transform, self._missing)(tensordict)

    def _repr_keys(self) -> Any:
        return ("dtype_in", "dtype_out", *super()._repr_keys())


class DoubleToFloat(DTypeCastTransform):
    """Casts float64 entries to float32, and float32 actions and states to float64 for the environment.

    Costs nothing where an environment has no float64 entry.

    Args:
        in_keys: observations and rewards to cast; by default all that are float64, ``[]`` for none.
        out_keys: where they go; by default the same keys.
        in_keys_inv: actions and states to cast back; by default all that are float64, ``[]`` for none.
        out_keys_inv: keys that the caller writes for them.
    """

    def __init__(
        self, in_keys: Any = None, out_keys: Any = None, in_keys_inv: Any = None, out_keys_inv: Any = None
    ) -> None:
        super().__init__(torch.float64, torch.float32, in_keys, out_keys, in_keys_inv, out_keys_inv)
