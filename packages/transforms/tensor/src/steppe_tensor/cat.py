"""CatTensors: concatenate entries."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial, reduce
from typing import Any

import torch
from tensordict import NestedKey, TensorDictBase

from steppe.errors import SpecError
from steppe.specs import Binary, Bounded, Composite, Spec, Unbounded, is_private
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
from .named import drop_empty_groups

__all__ = ["CatTensors"]


class CatTensors(PlannedTransform):
    """Concatenate entries: ``[*B, 3]`` and ``[*B, 2]`` become ``[*B, 5]``.

    The dtype is promoted to one that holds all values. The spec is bounded if the spec of one of the entries is.

    >>> from steppe import CatTensors, TransformedEnv, Unbounded
    >>> from steppe_testing import DataEnv
    >>> base = DataEnv({"position": Unbounded((3,)), "speed": Unbounded((2,))})
    >>> env = TransformedEnv(base, CatTensors(["position", "speed"], "observation"))
    >>> list(env.observation_spec.keys()), env.reset()["observation"].shape
    (['observation'], torch.Size([5]))

    Args:
        in_keys: observations to read. Default: all numeric vectors except states, in alphabetical order.
        out_key: key of the result.
        dim: dimension to concatenate along: negative, or counted from the first one after the batch size.
        del_keys: remove the entries that were read, except for states, which the next step reads.
        unsqueeze_if_oor: add dimensions of size 1 to entries without the dimension: in front, or at the end if ``dim``
            is not negative.
        sort: concatenate in alphabetical order instead of the order of ``in_keys``.

    Raises:
        SpecError: an entry is missing or not an observation, the shapes do not match, there is no entry to read, or
            ``dim`` is not -1 although no ``in_keys`` were passed.
    """

    changed_kinds = ("observation",)

    def __init__(
        self,
        in_keys: NestedKey | Sequence[NestedKey] | None = None,
        out_key: NestedKey = "observation_vector",
        dim: int = -1,
        *,
        del_keys: bool = True,
        unsqueeze_if_oor: bool = False,
        sort: bool = True,
    ) -> None:
        super().__init__()
        if in_keys is None and dim != -1:
            raise SpecError(f"CatTensors: without in_keys, vectors are concatenated and dim must be -1; found {dim!r}.")
        if not isinstance(out_key, (str, tuple)):
            raise SpecError(f"CatTensors: out_key must be a name or a tuple of names, found {out_key!r}.")
        keys = None if in_keys is None else as_keys(in_keys)
        self.requested_keys = sorted(keys, key=_order) if keys is not None and sort else keys
        if keys == []:
            raise SpecError("CatTensors: in_keys is empty; leave it out to concatenate all vectors of the environment.")
        self.out_key = as_key(out_key)
        self.dim = dim
        self.del_keys = del_keys
        self.unsqueeze_if_oor = unsqueeze_if_oor

    @property
    def in_keys(self) -> list[Any]:
        """The entries to read; those of the environment if none were passed."""
        if self.requested_keys is not None:
            return list(self.requested_keys)
        env = self.parent
        return [] if env is None else self._keys(EnvSpecs.of(env))

    @in_keys.setter
    def in_keys(self, keys: Any) -> None:
        self.requested_keys = None if keys is None else as_keys(keys)
        self.empty_cache()

    @property
    def out_keys(self) -> list[Any]:
        """The key of the result, in a list."""
        return [self.out_key]

    @out_keys.setter
    def out_keys(self, keys: Any) -> None:
        (self.out_key,) = as_keys(keys)
        self.empty_cache()

    def _keys(self, specs: EnvSpecs) -> list[Any]:
        items = dict(specs.observation.items(include_nested=True, leaves_only=True))
        if self.requested_keys is not None:
            missing = [key for key in self.requested_keys if key not in items]
            if missing:
                raise SpecError(f"CatTensors: the environment has no observation {missing[0]!r}. It has {[*items]}.")
            return list(self.requested_keys)
        ndim = len(specs.batch_size) + 1
        vectors = [
            key
            for key, leaf in items.items()
            if leaf is not None
            and leaf.dtype is not None
            and leaf.ndim == ndim
            and not is_private(key)
            and specs.state.get(key, None) is None
        ]
        if not vectors:
            raise SpecError(f"CatTensors: the environment has no vector to read; pass in_keys. It has {[*items]}.")
        return sorted(vectors, key=_order)

    def _dims(self, shapes: list[Any]) -> tuple[int, list[Any]]:
        """Return the dimension and the shapes to concatenate.

        The dimension is negative; the shapes have no batch dimensions.
        """
        if self.unsqueeze_if_oor:
            min_dims = -self.dim if self.dim < 0 else self.dim + 1
            missing = [(1,) * max(0, min_dims - len(shape)) for shape in shapes]
            pairs = zip(missing, shapes, strict=True)
            shapes = [(*ones, *shape) if self.dim < 0 else (*shape, *ones) for ones, shape in pairs]
        ndim = len(shapes[0])
        dim = self.dim if self.dim < 0 else self.dim - ndim
        fits = all(len(shape) == ndim for shape in shapes) and -ndim <= dim < 0
        others = {(*shape[:dim], *shape[ndim + dim + 1 :]) for shape in shapes} if fits else set()
        if len(others) != 1:
            raise SpecError(
                f"CatTensors: entries of shapes {[tuple(shape) for shape in shapes]} cannot be concatenated along dim="
                f"{self.dim}: the other sizes must agree. Leave some out with in_keys, or pass another dim."
            )
        return dim, shapes

    def transform_specs(self, specs: EnvSpecs) -> EnvSpecs:
        keys = self._keys(specs)
        specs = specs.copy()
        batch = len(specs.batch_size)
        leaves = [specs.observation[key] for key in keys]
        dim, shapes = self._dims([leaf.shape[batch:] for leaf in leaves])
        leaf = _concatenated_spec(leaves, [(*specs.batch_size, *shape) for shape in shapes], dim)
        for key in self._dropped(keys, specs.state):
            del specs.observation[key]
        set_beside(specs.observation, self.out_key, leaf, specs.observation)
        drop_empty_groups(specs.observation, self._dropped(keys, specs.state))
        return specs

    def _dropped(self, keys: list[Any], state: Composite) -> list[Any]:
        if not self.del_keys:
            return []
        return [key for key in keys if key != self.out_key and state.get(key, None) is None]

    def hooks(self, specs: EnvSpecs) -> Hooks:
        keys = self._keys(specs)
        dropped = self._dropped(keys, specs.state)
        batch = len(specs.batch_size)
        leaves = [specs.observation[key] for key in keys]
        dim, shapes = self._dims([leaf.shape[batch:] for leaf in leaves])
        same = all(tuple(leaf.shape[batch:]) == tuple(shape) for leaf, shape in zip(leaves, shapes, strict=True))

        def concatenate(_: Any, data: TensorDictBase) -> TensorDictBase:
            values = [data.get(key) for key in keys]
            if not same:
                lead = data.batch_dims
                pairs = zip(values, shapes, strict=True)
                values = [value.reshape(*value.shape[:lead], *shape) for value, shape in pairs]
            result = torch.cat(values, dim)
            for key in dropped:
                data.del_(key)
            data.set(self.out_key, result)
            drop_empty_groups(data, dropped)
            return data

        copies = partial(_copies, keys=keys, out_key=self.out_key, shapes=shapes, dim=dim)
        rows = RowHooks(Gathering(copies), reads=keys)
        return Hooks(step=concatenate, reset=concatenate, reads_root=False, rows=rows)

    def forward(self, tensordict: TensorDictBase) -> TensorDictBase:
        """Concatenate entries of data that comes from no environment.

        Args:
            tensordict: data of any batch size with the entries ``in_keys``; changed in place.

        Raises:
            SpecError: no ``in_keys`` were passed, and the transform has no environment.
            KeyError: an entry is missing.
        """
        keys = self.in_keys
        if not keys:
            raise SpecError("CatTensors: pass in_keys for data that comes from no environment.")
        lead = tensordict.batch_dims
        values = [tensordict.get(key) for key in keys]
        dim, shapes = self._dims([value.shape[lead:] for value in values])
        parts = [value.reshape(*value.shape[:lead], *shape) for value, shape in zip(values, shapes, strict=True)]
        dropped = [key for key in keys if key != self.out_key] if self.del_keys else []
        for key in dropped:
            tensordict.del_(key)
        tensordict.set(self.out_key, torch.cat(parts, dim))
        drop_empty_groups(tensordict, dropped)
        return tensordict

    def shared_key(self) -> Any:
        keys = None if self.requested_keys is None else tuple(self.requested_keys)
        return (type(self), keys, self.out_key, self.dim, self.del_keys, self.unsqueeze_if_oor)

    def _repr_keys(self) -> Any:
        return ("requested_keys", "out_key", "dim")


def _order(key: Any) -> str:
    return "_-|-_".join(names_of(key))


def _concatenated_spec(leaves: list[Spec], shapes: list[Any], dim: int) -> Spec:
    """Return the spec of the concatenated entries."""
    sizes = list(shapes[0])
    sizes[dim] = sum(shape[dim] for shape in shapes)
    device = leaves[0].device
    if any(size < 0 for shape in shapes for size in shape):
        raise SpecError("CatTensors: entries whose sizes change cannot be concatenated; leave them out of in_keys.")
    dtypes = [leaf.dtype for leaf in leaves if leaf.dtype is not None]
    if len(dtypes) != len(leaves):
        raise SpecError("CatTensors: text and objects cannot be concatenated; leave them out of in_keys.")
    dtype = reduce(torch.promote_types, dtypes)
    if all(isinstance(leaf, Unbounded) for leaf in leaves):
        return Unbounded(sizes, device=device, dtype=dtype)
    if all(isinstance(leaf, Binary) for leaf in leaves):
        return Binary(shape=sizes, device=device, dtype=dtype)
    bounds = [leaf.bounds() for leaf in leaves]
    low, high = (
        torch.cat([bound[i].reshape(shape).to(dtype) for bound, shape in zip(bounds, shapes, strict=True)], dim)
        for i in (0, 1)
    )
    return Bounded(low, high, shape=sizes, device=device, dtype=dtype)


def _copies(arrays: Any, keys: list[Any], out_key: Any, shapes: list[Any], dim: int) -> list[tuple[Any, Any]]:
    """Return pairs of the part of the result that holds an entry, and the entry."""
    out, start, copies = arrays[out_key], 0, []
    for key, shape in zip(keys, shapes, strict=True):
        region = [slice(None)] * out.ndim
        region[dim] = slice(start, start + shape[dim])
        start += shape[dim]
        source = arrays.before[key]
        copies.append((out[tuple(region)], source.reshape(len(source), *shape)))
    return copies
