"""Transforms of dtypes and devices."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from tensordict import TensorDictBase
from tensordict.nn import dispatch

from steppe.errors import SpecError
from steppe.specs import Composite, Spec, torch_to_numpy_dtype_dict
from steppe.transforms.compiled.hooks import EnvSpecs, Hooks, RowHooks, pair_hook
from steppe.transforms.keys import keys_property
from steppe.transforms.whole_specs import WholeSpecs

__all__ = ["DTypeCastTransform", "DoubleToFloat"]


class DTypeCastTransform(WholeSpecs):
    """Casts entries of one dtype to another, and back on the way to the environment.

    Called on data that comes from no environment, it casts all entries of ``dtype_in``, and ``inv`` all of
    ``dtype_out``, unless it was given keys.

    Args:
        dtype_in: dtype that the environment has.
        dtype_out: dtype that the caller sees.
        in_keys: observations and rewards to cast; by default all of ``dtype_in``, ``[]`` for none.
        out_keys: where they go; by default the same keys.
        in_keys_inv: actions and states to cast from ``dtype_out`` to ``dtype_in``. By default all of ``dtype_in``, or
            none where ``in_keys`` are given.
        out_keys_inv: keys that the caller writes for them.

    Raises:
        SpecError: ``out_keys`` without ``in_keys``.
    """

    invertible = True
    writes_done = False
    writes_step = False
    keeps_nothing = True

    def __init__(
        self,
        dtype_in: torch.dtype,
        dtype_out: torch.dtype,
        in_keys: Any = None,
        out_keys: Any = None,
        in_keys_inv: Any = None,
        out_keys_inv: Any = None,
    ) -> None:
        for given, renamed, name in ((in_keys, out_keys, "in_keys"), (in_keys_inv, out_keys_inv, "in_keys_inv")):
            if given is None and renamed is not None:
                raise SpecError(f"{type(self).__name__}: out_keys need {name}: their order is that of {name}.")
        if in_keys is not None and in_keys_inv is None:
            in_keys_inv = []
        super().__init__(in_keys, out_keys, in_keys_inv, out_keys_inv)
        self.dtype_in = dtype_in
        self.dtype_out = dtype_out

    in_keys = keys_property("in_keys", found=lambda self: self._keys_found("observation", "reward"))
    in_keys_inv = keys_property("in_keys_inv", found=lambda self: self._keys_found("action", "state"))

    @property
    def _all_out(self) -> bool:
        return self._in_keys is None

    @property
    def _all_in(self) -> bool:
        return self._in_keys_inv is None

    def _keys_found(self, *kinds: str) -> list[Any]:
        """The keys that are cast in the environment; none without one, where all data is looked at."""
        env = self.parent
        if env is None:
            return []
        return [key for key, _ in self._keys_of(*(getattr(env, f"full_{kind}_spec") for kind in kinds))]

    def _apply_transform(self, value: torch.Tensor) -> torch.Tensor:
        return value.to(self.dtype_out)

    def _inv_apply_transform(self, value: torch.Tensor) -> torch.Tensor:
        return value.to(self.dtype_in)

    def inverse_kernel(self, leaf: Spec) -> Callable[[np.ndarray[Any, Any]], np.ndarray[Any, Any]] | None:
        given, wanted = (torch_to_numpy_dtype_dict.get(dtype) for dtype in (self.dtype_out, self.dtype_in))
        # To a wider float: other casts numpy may warn of, or do in its own way.
        if given is None or wanted is None or not (self.dtype_out.is_floating_point and np.can_cast(given, wanted)):
            return None
        return lambda action: action.astype(wanted)

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
        keys = (self._in_keys, self._out_keys, self._in_keys_inv, self._out_keys_inv)
        return (type(self), self.dtype_in, self.dtype_out, *(one if one is None else tuple(one) for one in keys))

    def _row_hooks(self, forward: list[tuple[Any, Any]]) -> RowHooks | None:
        # Of floats alone: numpy and torch cast what does not fit into whole numbers in their own ways.
        if not (self.dtype_in.is_floating_point and self.dtype_out.is_floating_point):
            return None
        if any(key != out_key for key, out_key in forward):
            return None
        return RowHooks(casts=[key for key, _ in forward])

    def _call(self, next_tensordict: TensorDictBase) -> TensorDictBase:
        alone = self._all_out and self.parent is None
        pairs = _of_dtype(next_tensordict, self.dtype_in) if alone else self._pairs
        return pair_hook(pairs, self._apply_transform, self._missing)(next_tensordict)

    def _inv_call(self, tensordict: TensorDictBase) -> TensorDictBase:
        alone = self._all_in and self.parent is None
        pairs = _of_dtype(tensordict, self.dtype_out) if alone else self._inverse_pairs
        return pair_hook(pairs, self._inv_apply_transform, self._missing)(tensordict)

    @dispatch(source="in_keys", dest="out_keys")
    def forward(self, tensordict: TensorDictBase) -> TensorDictBase:
        """Cast entries of data that is there already."""
        return self._call(tensordict)

    def _repr_keys(self) -> Any:
        return ("dtype_in", "dtype_out", *super()._repr_keys())


def _of_dtype(data: TensorDictBase, dtype: torch.dtype) -> list[tuple[Any, Any]]:
    items = data.items(include_nested=True, leaves_only=True)
    return [(key, key) for key, value in items if value.dtype is dtype]


class DoubleToFloat(DTypeCastTransform):
    """Casts float64 entries to float32, and float32 actions and states to float64 for the environment.

    Costs nothing where an environment has no float64 entry.

    Args:
        in_keys: observations and rewards to cast; by default all that are float64, ``[]`` for none.
        out_keys: where they go; by default the same keys.
        in_keys_inv: actions and states to cast back. By default all that are float64, or none where ``in_keys`` are
            given.
        out_keys_inv: keys that the caller writes for them.
    """

    def __init__(
        self, in_keys: Any = None, out_keys: Any = None, in_keys_inv: Any = None, out_keys_inv: Any = None
    ) -> None:
        super().__init__(torch.float64, torch.float32, in_keys, out_keys, in_keys_inv, out_keys_inv)
