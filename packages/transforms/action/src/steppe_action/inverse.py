"""ActionInverse: the base class of transforms that convert the caller's actions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from tensordict import TensorDictBase

from steppe.errors import SpecError
from steppe.specs import Spec
from steppe.transforms import EnvSpecs, Hooks, RowGenerators, Transform, set_beside

__all__ = ["ActionInverse", "has_floats", "one_row"]


class ActionInverse(Transform):
    """Convert the caller's actions to the environment's.

    The caller writes its actions at ``out_keys_inv``; the environment reads them at ``in_keys_inv``. A subclass
    overrides three methods: ``_inv_apply_transform`` converts an action of the caller to one of the environment,
    ``caller_spec`` returns the spec of the caller's action, and ``_apply_transform`` converts stored actions of the
    environment to those of the caller. The data of steps and resets stays unchanged.
    """

    writes_done = False
    changed_kinds = ("action",)

    def caller_spec(self, leaf: Spec, batch_dims: int) -> Spec:
        """Return the spec of the caller's action. ``leaf`` is the spec of the environment's action."""
        raise NotImplementedError

    def action_leaf(self, specs: EnvSpecs, key: Any) -> Spec:
        """Return the spec of an action of the environment.

        Raises:
            SpecError: the environment has no action at this key.
        """
        leaf: Spec | None = specs.action.get(key, None)
        if leaf is None:
            keys = list(specs.action.keys(include_nested=True, leaves_only=True))
            raise SpecError(f"{type(self).__name__}: the environment has no action {key!r}. It takes {keys}.")
        return leaf

    def transform_specs(self, specs: EnvSpecs) -> EnvSpecs:
        callers = [
            (key, out_key, self.caller_spec(self.action_leaf(specs, key), len(specs.batch_size)))
            for key, out_key in zip(self.in_keys_inv, self.out_keys_inv, strict=True)
        ]
        before, specs = specs.action, specs.copy()
        for key, out_key, leaf in callers:
            if out_key != key:
                specs.action.pop(key)
            set_beside(specs.action, out_key, leaf, before)
        return specs

    def hooks(self, specs: EnvSpecs) -> Hooks:
        pairs = [(out_key, key) for key, out_key in zip(self.in_keys_inv, self.out_keys_inv, strict=True)]
        if not pairs:
            return Hooks()

        def inverse(data: TensorDictBase) -> TensorDictBase:
            for out_key, key in pairs:
                value = data.get(out_key, None)
                if value is not None:
                    data.set(key, self._inv_apply_transform(value))
                elif not self.missing_tolerance:
                    raise KeyError(
                        f"{type(self).__name__}: the data has no action {out_key!r}. It has "
                        f"{sorted(map(str, data.keys(include_nested=True, leaves_only=True)))}."
                    )
            return data

        return Hooks(inverse=inverse, inverse_pairs=pairs)

    def rows_of(self, value: torch.Tensor, dims: int) -> int:
        """Return the number of rows in a value whose last ``dims`` dimensions are one row."""
        env = self.parent
        lead = 0 if env is None else len(env.batch_size)
        return value.shape[:lead].numel() if value.ndim - dims >= lead else 1

    @staticmethod
    def drawn(
        draws: RowGenerators, rows: int, count: int, make: Callable[[int, torch.Generator | None], torch.Tensor]
    ) -> torch.Tensor:
        """Return ``make(count // rows, generator)`` of each row, concatenated."""
        rows = rows if rows and count % rows == 0 else 1
        return torch.cat([make(count // rows, generator) for generator in draws.of(rows)])


def has_floats(leaf: Spec) -> bool:
    """Whether an action consists of floating-point numbers, instead of choices."""
    return leaf.dtype is not None and leaf.dtype.is_floating_point and leaf.array_check() is None


def one_row(leaf: Spec, batch_dims: int) -> Spec:
    """Return the spec of one row, or that of all rows if their bounds differ."""
    if not batch_dims:
        return leaf
    for bound in leaf.bounds():
        rows = bound.reshape(-1, *bound.shape[batch_dims:])
        if not torch.equal(rows, rows[:1].expand_as(rows)):
            return leaf
    return leaf[(0,) * batch_dims]  # type: ignore[no-any-return]
