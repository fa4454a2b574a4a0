"""Stack: stack entries, or groups of entries, along a new dimension."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from tensordict import NestedKey, TensorDict, TensorDictBase

from steppe.errors import SpecError
from steppe.specs import SPEC_KINDS, Bounded, Composite, Spec, Stacked
from steppe.transforms import (
    EnvSpecs,
    Hooks,
    PlannedTransform,
    RowHooks,
    as_key,
    as_keys,
    names_of,
    set_beside,
)

from .gathering import Gathering
from .named import checked_dim, drop_empty_groups

__all__ = ["Stack"]


class Stack(PlannedTransform):
    """Stack entries, or groups of entries, of the same shape.

    Agents with separate keys become one group, for example. The inverse splits a stacked action or state that the
    caller writes into the entries of the environment.

    >>> from steppe import Stack, TransformedEnv, Unbounded
    >>> from steppe_testing import DataEnv
    >>> base = DataEnv({"left": Unbounded((8,)), "right": Unbounded((8,))})
    >>> env = TransformedEnv(base, Stack(["left", "right"], "ears", dim=-2))
    >>> list(env.observation_spec.keys()), env.reset()["ears"].shape
    (['ears'], torch.Size([2, 8]))

    Args:
        in_keys: entries or groups to stack: observations, rewards and done entries.
        out_key: key of the stack.
        in_key_inv: key of the stacked action or state, or group of them, that the caller writes.
        out_keys_inv: keys of its parts, which the environment reads.
        dim: position of the new dimension; negative. For a group, it counts among the batch dimensions of the group, so
            that -1 inserts it before the dimensions of the entries.
        allow_positive_dim: allow ``dim`` to count from the first dimension after the batch size of the environment.
        del_keys: remove the stacked entries from the data.

    Raises:
        SpecError: only one of ``in_key_inv`` and ``out_keys_inv`` is passed, ``dim`` is not negative, ``out_key`` is
            one of ``in_keys``, or the environment lacks some of the entries.
    """

    invertible = True

    def __init__(
        self,
        in_keys: Sequence[NestedKey],
        out_key: NestedKey,
        in_key_inv: NestedKey | None = None,
        out_keys_inv: NestedKey | Sequence[NestedKey] | None = None,
        dim: int = -1,
        allow_positive_dim: bool = False,
        *,
        del_keys: bool = True,
    ) -> None:
        super().__init__()
        if (in_key_inv is None) != (out_keys_inv is None):
            raise SpecError(
                f"Stack: pass in_key_inv and out_keys_inv together, found {in_key_inv!r} and {out_keys_inv!r}."
            )
        self.parts, self.out_key = as_keys(in_keys), as_key(out_key)
        if not self.parts:
            raise SpecError("Stack: in_keys is empty; pass the entries or groups to stack.")
        if self.out_key in self.parts:
            raise SpecError(f"Stack: out_key={self.out_key!r} is one of in_keys; choose another key for the stack.")
        self.in_key_inv = None if in_key_inv is None else as_key(in_key_inv)
        self.parts_inv = as_keys(out_keys_inv)
        self.dim = checked_dim("Stack", "dim", dim, allow_positive_dim)
        self.del_keys = del_keys

    @property
    def in_keys(self) -> list[Any]:
        """The entries or groups that are stacked."""
        return list(self.parts)

    @property
    def out_keys(self) -> list[Any]:
        """The key of the stack, in a list."""
        return [self.out_key]

    @property
    def in_keys_inv(self) -> list[Any]:
        """The key that the caller writes, in a list."""
        return [] if self.in_key_inv is None else [self.in_key_inv]

    @property
    def out_keys_inv(self) -> list[Any]:
        """The keys of its parts."""
        return list(self.parts_inv)

    @property
    def writes_done(self) -> bool:  # type: ignore[override]
        """Whether done entries are stacked."""
        return any(names_of(key)[-1] in ("done", "terminated", "truncated") for key in (*self.parts, self.out_key))

    # -- specs ----------------------------------------------------------------------------------------------------

    def transform_specs(self, specs: EnvSpecs) -> EnvSpecs:
        specs = specs.copy()
        stacked = False
        for kind in SPEC_KINDS:
            outward = kind in ("observation", "reward", "done")
            keys, out_key = (self.parts, self.out_key) if outward else (self.parts_inv, self.in_key_inv)
            if keys:
                stacked |= self._stack_specs(getattr(specs, kind), keys, out_key, len(specs.batch_size), outward)
        if not stacked and not self.missing_tolerance and self.parent is not None:
            raise self._absent(specs.output)
        return specs

    def _stack_specs(self, spec: Composite, keys: list[Any], out_key: Any, batch: int, outward: bool) -> bool:
        leaves = [spec.get(key, None) for key in keys]
        if all(leaf is None for leaf in leaves):
            return False
        missing = [key for key, leaf in zip(keys, leaves, strict=True) if leaf is None]
        if missing:
            others = [key for key in keys if key not in missing]
            raise SpecError(f"Stack: the environment lacks {missing[0]!r}, but has {others}.")
        shapes = {tuple(leaf.shape) for leaf in leaves}
        if len(shapes) != 1:
            raise SpecError(
                f"Stack: {keys} have the shapes {[tuple(leaf.shape[batch:]) for leaf in leaves]}; only entries of the "
                "same shape can be stacked."
            )
        stacked = _stacked(leaves, self._place(len(next(iter(shapes))), batch))
        if self.del_keys or not outward:
            for key in keys:
                spec.pop(key)
            drop_empty_groups(spec, keys)
        set_beside(spec, out_key, stacked, spec)
        return True

    def _place(self, ndim: int, batch: int) -> int:
        """Return the position of the new dimension, counted from the first one.

        ``ndim`` is the number of dimensions of the entries.
        """
        place = self.dim + ndim + 1 if self.dim < 0 else self.dim + batch
        if not batch <= place <= ndim:
            raise SpecError(
                f"Stack: dim={self.dim} is out of range for {ndim - batch} dimensions after the batch size; pass a "
                f"dim from {batch - ndim - 1} to -1."
            )
        return place

    def _absent(self, output: Any) -> SpecError:
        keys = [key[1:] for key in output.keys(include_nested=True, leaves_only=True)]
        return SpecError(f"Stack: the environment has none of {self.parts}. It has {keys}.")

    # -- data -----------------------------------------------------------------------------------------------------

    def hooks(self, specs: EnvSpecs) -> Hooks:
        batch = len(specs.batch_size)
        hooks = Hooks(step=self._stack, reset=self._stack, reads_root=False)
        if self.in_key_inv is not None:
            groups = any(isinstance(specs.action.get(key, None), Composite) for key in self.parts_inv)
            hooks.inverse = self._split
            if groups:
                hooks.before_reset = lambda td: None if td is None else self._split(td)
        leaves = [spec.get(self.parts[0], None) for spec in (specs.observation, specs.reward)]
        leaf = next((first_leaf for first_leaf in leaves if first_leaf is not None), None)
        if leaf is not None and not isinstance(leaf, Composite):
            place = self._place(leaf.ndim, batch)
            copies = partial(_copies, keys=self.parts, out_key=self.out_key, place=place - batch)
            hooks.rows = RowHooks(Gathering(copies), reads=self.parts)
        return hooks

    def _stack(self, _: Any, data: TensorDictBase) -> TensorDictBase:
        values = [data.get(key, None) for key in self.parts]
        missing = [key for key, value in zip(self.parts, values, strict=True) if value is None]
        if missing:
            if len(missing) == len(values) or self.missing_tolerance:
                return data
            keys = sorted(map(str, data.keys(include_nested=True, leaves_only=True)))
            raise KeyError(f"Stack: the data has no entry {missing[0]!r}. It has {keys}.")
        ndim = values[0].batch_dims if isinstance(values[0], TensorDictBase) else values[0].ndim
        stacked = torch.stack(values, self._place(ndim, data.batch_dims))
        if self.del_keys:
            for key in self.parts:
                data.del_(key)
            drop_empty_groups(data, self.parts)
        return data.set(self.out_key, stacked)

    def _split(self, data: TensorDictBase) -> TensorDictBase:
        if self.in_key_inv is None:
            return data
        value = data.get(self.in_key_inv, None)
        if value is None:
            return data
        n, batch = len(self.parts_inv), data.batch_dims
        if isinstance(value, TensorDictBase):
            parts = _unbound_group(value, n, self._place_of_group(value, batch), batch)
        else:
            place = self.dim + value.ndim if self.dim < 0 else self.dim + batch
            _check_size(value, place, n)
            parts = list(value.unbind(place))
        data = data.exclude(self.in_key_inv)
        for key, part in zip(self.parts_inv, parts, strict=True):
            old = data.get(key, None)
            if isinstance(old, TensorDictBase) and isinstance(part, TensorDictBase):
                data.set(key, old.copy().update(part))
            else:
                data.set(key, part)
        return data

    def _place_of_group(self, value: TensorDictBase, batch: int) -> int:
        # A group that the caller made may have only the batch size of the data, even if its spec has more dimensions.
        if self.dim >= 0:
            return self.dim + batch
        return max(self.dim + value.batch_dims, batch) if value.batch_dims > batch else batch

    def _inv_call(self, tensordict: TensorDictBase) -> TensorDictBase:
        return self._split(tensordict)

    def forward(self, tensordict: TensorDictBase) -> TensorDictBase:
        """Stack entries of data that comes from no environment.

        Args:
            tensordict: data of any batch size with the parts. Its entries are replaced; tensors are not changed.

        Raises:
            KeyError: a part is missing.
        """
        if all(tensordict.get(key, None) is None for key in self.parts) and not self.missing_tolerance:
            keys = sorted(map(str, tensordict.keys(include_nested=True, leaves_only=True)))
            raise KeyError(f"Stack: the data has none of {self.parts}. It has {keys}.")
        return self._stack(None, tensordict)

    def shared_key(self) -> Any:
        inverse = (self.in_key_inv, tuple(self.parts_inv))
        return (type(self), tuple(self.parts), self.out_key, inverse, self.dim, self.del_keys)

    def _repr_keys(self) -> Any:
        return ("parts", "out_key", "dim")


def _stacked(leaves: list[Any], place: int) -> Spec:
    """Return the spec of stacked data; different bounds are stacked too."""
    stacked: Any = torch.stack(leaves, place)
    return _with_stacked_bounds(stacked, leaves, place)


def _with_stacked_bounds(stacked: Spec, leaves: list[Any], place: int) -> Spec:
    if isinstance(stacked, Stacked) and len({leaf.dtype for leaf in leaves}) == 1 and leaves[0].dtype is not None:
        bounds = [leaf.bounds() for leaf in leaves]
        low, high = (torch.stack([bound[i] for bound in bounds], place) for i in (0, 1))
        return Bounded(low, high, shape=low.shape, device=leaves[0].device, dtype=low.dtype)
    if isinstance(leaves[0], Composite) and len({frozenset(map(str, leaf.keys())) for leaf in leaves}) == 1:
        entries = {name: _stacked([leaf[name] for leaf in leaves], place) for name in leaves[0].keys()}
        return Composite(entries, shape=stacked.shape, device=leaves[0].device)
    return stacked


def _unbound_group(value: TensorDictBase, n: int, place: int, batch: int) -> list[TensorDictBase]:
    size = torch.Size(value.batch_size[:batch])
    parts: list[TensorDictBase] = [TensorDict({}, size, device=value.device) for _ in range(n)]
    leaf: Any
    for key, leaf in value.items(include_nested=True, leaves_only=True):
        _check_size(leaf, place, n)
        for part, row in zip(parts, leaf.unbind(place), strict=True):
            part.set(key, row)
    return parts


def _check_size(value: torch.Tensor, place: int, n: int) -> None:
    if not 0 <= place < value.ndim or value.shape[place] != n:
        raise SpecError(
            f"Stack: data of shape {tuple(value.shape)} has no dimension {place} of size {n} to split it along."
        )


def _copies(arrays: Any, keys: list[Any], out_key: Any, place: int) -> list[tuple[Any, Any]]:
    """Return pairs of the part of the stack that holds an entry, and the entry."""
    if out_key not in arrays:
        return []  # rewards are only in ``next``
    out, lead = arrays[out_key], (slice(None),) * (place + 1)
    return [(out[(*lead, i)], arrays.before[key]) for i, key in enumerate(keys)]
