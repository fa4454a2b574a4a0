"""DTypeCastTransform and DoubleToFloat: cast entries to another dtype."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from tensordict import NestedKey, TensorDictBase
from tensordict.nn import dispatch

from steppe.errors import SpecError
from steppe.specs import Composite, Spec, is_memory, torch_to_numpy_dtype_dict
from steppe.transforms import EnvSpecs, Hooks, RowHooks, Transform, keys_property, pair_hook

__all__ = ["DTypeCastTransform", "DoubleToFloat"]


class DTypeCastTransform(Transform):
    """Cast entries from one dtype to another, and back on the way to the environment.

    Without keys, data that comes from no environment is cast in all entries of ``dtype_in``; ``inv`` casts all entries
    of ``dtype_out``.

    >>> import torch
    >>> from steppe import DTypeCastTransform, TransformedEnv, make_env
    >>> chain = DTypeCastTransform(torch.float32, torch.float64, in_keys=["observation"])
    >>> env = TransformedEnv(make_env("gym:CartPole-v1"), chain)
    >>> env.reset()["observation"].dtype
    torch.float64

    Args:
        dtype_in: dtype of the environment's entries.
        dtype_out: dtype of the caller's entries.
        in_keys: observations and rewards to cast. Default: all of ``dtype_in``; ``[]`` for none.
        out_keys: keys to write, as many as ``in_keys``. Default: ``in_keys``.
        in_keys_inv: actions and states to cast from ``dtype_out`` to ``dtype_in``. Default: all of ``dtype_in``, or
            none if ``in_keys`` are passed.
        out_keys_inv: keys that the caller writes instead. Default: ``in_keys_inv``.

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
        in_keys: NestedKey | Sequence[NestedKey] | None = None,
        out_keys: NestedKey | Sequence[NestedKey] | None = None,
        in_keys_inv: NestedKey | Sequence[NestedKey] | None = None,
        out_keys_inv: NestedKey | Sequence[NestedKey] | None = None,
    ) -> None:
        for keys, renamed, name in ((in_keys, out_keys, "in_keys"), (in_keys_inv, out_keys_inv, "in_keys_inv")):
            if keys is None and renamed is not None:
                raise SpecError(f"{type(self).__name__}: out_keys need {name}, which have the same order.")
        if in_keys is not None and in_keys_inv is None:
            in_keys_inv = []
        super().__init__(in_keys, out_keys, in_keys_inv, out_keys_inv)
        self.dtype_in = dtype_in
        self.dtype_out = dtype_out

    in_keys = keys_property("in_keys", found=lambda self: self._default_keys("observation", "reward"))
    in_keys_inv = keys_property("in_keys_inv", found=lambda self: self._default_keys("action", "state"))

    @property
    def _all_out(self) -> bool:
        return self.given_keys()[0] is None

    @property
    def _all_in(self) -> bool:
        return self.given_keys()[2] is None

    def _default_keys(self, *kinds: str) -> list[Any]:
        """Return the keys to cast in the environment.

        Without an environment, there are none: ``_call`` reads the dtypes of the data instead.
        """
        env = self.parent
        if env is None:
            return []
        return [key for key, _ in self._keys_of(*(getattr(env, f"full_{kind}_spec") for kind in kinds))]

    def _apply_transform(self, value: torch.Tensor) -> torch.Tensor:
        return value.to(self.dtype_out)

    def _inv_apply_transform(self, value: torch.Tensor) -> torch.Tensor:
        return value.to(self.dtype_in)

    def inverse_kernel(self, leaf: Spec) -> Callable[[np.ndarray[Any, Any]], np.ndarray[Any, Any]] | None:
        source, target = (torch_to_numpy_dtype_dict.get(dtype) for dtype in (self.dtype_out, self.dtype_in))
        # Only to a wider float: numpy warns of other casts, or rounds them differently from torch.
        if source is None or target is None or not (self.dtype_out.is_floating_point and np.can_cast(source, target)):
            return None
        return lambda action: action.astype(target)

    def _keys_of(self, *specs: Composite) -> list[tuple[Any, Any]]:
        return [
            (key, key)
            for spec in specs
            for key, leaf in spec.items(include_nested=True, leaves_only=True)
            if leaf is not None and leaf.dtype is self.dtype_in and not is_memory(key)
        ]

    def _forward_keys(self, specs: EnvSpecs) -> list[tuple[Any, Any]]:
        return self._keys_of(specs.observation, specs.reward) if self._all_out else self.key_pairs

    def _inverse_keys(self, specs: EnvSpecs) -> list[tuple[Any, Any]]:
        return self._keys_of(specs.action, specs.state) if self._all_in else self.inverse_key_pairs

    def transform_specs(self, specs: EnvSpecs) -> EnvSpecs:
        specs = specs.copy()
        for pairs, kinds in (
            (self._forward_keys(specs), (specs.observation, specs.reward)),
            # The caller writes the keys that the inverse reads, so these are the keys of the spec.
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
            run = pair_hook(forward, self._apply_transform, self.missing_entry)
            tolerant = pair_hook(forward, self._apply_transform, None)
            hooks.step = lambda _, following: run(following)
            hooks.reset = lambda _, fresh: tolerant(fresh)
            hooks.reads_root = False
            hooks.pairs = forward
        if inverse:
            # Missing states are no error here: the environment raises one if it needs them.
            hooks.inverse = pair_hook(inverse, self._inv_apply_transform, None)
            hooks.inverse_pairs = inverse
        hooks.rows = self._row_hooks(forward)
        return hooks

    def shared_key(self) -> Any:
        return (type(self), self.dtype_in, self.dtype_out, self.given_keys())

    def _row_hooks(self, forward: list[tuple[Any, Any]]) -> RowHooks | None:
        # Only floats: numpy and torch differ in casts of values that do not fit into integers.
        if not (self.dtype_in.is_floating_point and self.dtype_out.is_floating_point):
            return None
        if any(key != out_key for key, out_key in forward):
            return None
        return RowHooks(casts=[key for key, _ in forward])

    def _call(self, next_tensordict: TensorDictBase) -> TensorDictBase:
        from_data = self._all_out and self.parent is None
        pairs = _of_dtype(next_tensordict, self.dtype_in) if from_data else self.key_pairs
        return pair_hook(pairs, self._apply_transform, self.missing_entry)(next_tensordict)

    def _inv_call(self, tensordict: TensorDictBase) -> TensorDictBase:
        from_data = self._all_in and self.parent is None
        pairs = _of_dtype(tensordict, self.dtype_out) if from_data else self.inverse_key_pairs
        return pair_hook(pairs, self._inv_apply_transform, self.missing_entry)(tensordict)

    @dispatch(source="in_keys", dest="out_keys")
    def forward(self, tensordict: TensorDictBase) -> TensorDictBase:
        """Cast entries of data that comes from no environment."""
        return self._call(tensordict)

    def _repr_keys(self) -> Any:
        return ("dtype_in", "dtype_out", *super()._repr_keys())


def _of_dtype(data: TensorDictBase, dtype: torch.dtype) -> list[tuple[Any, Any]]:
    items = data.items(include_nested=True, leaves_only=True)
    return [(key, key) for key, value in items if value.dtype is dtype]


class DoubleToFloat(DTypeCastTransform):
    """Cast float64 entries to float32, and actions and states back to float64.

    It has no cost if the environment has no float64 entry.

    >>> from steppe import DoubleToFloat, TransformedEnv, make_env
    >>> env = TransformedEnv(make_env("gym:InvertedPendulum-v5"), DoubleToFloat())
    >>> env.rollout(2)["observation"].dtype
    torch.float32

    Args:
        in_keys: observations and rewards to cast. Default: all that are float64; ``[]`` for none.
        out_keys: keys to write, as many as ``in_keys``. Default: ``in_keys``.
        in_keys_inv: actions and states to cast back. Default: all that are float64, or none if ``in_keys`` are passed.
        out_keys_inv: keys that the caller writes instead. Default: ``in_keys_inv``.
    """

    def __init__(
        self,
        in_keys: NestedKey | Sequence[NestedKey] | None = None,
        out_keys: NestedKey | Sequence[NestedKey] | None = None,
        in_keys_inv: NestedKey | Sequence[NestedKey] | None = None,
        out_keys_inv: NestedKey | Sequence[NestedKey] | None = None,
    ) -> None:
        super().__init__(torch.float64, torch.float32, in_keys, out_keys, in_keys_inv, out_keys_inv)
