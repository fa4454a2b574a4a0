"""Specs of Jumanji as those of steppe."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
from jumanji import specs as theirs

from steppe.specs import Bounded, Categorical, MultiCategorical, MultiOneHot, OneHot, Spec
from steppe_jax import torch_dtype

__all__ = ["action_spec", "observation_specs"]

#: Lower bounds of entries that go below what Jumanji declares, by the class of the environment: a salesman is at no
#: city, -1, until the first step.
_LOWER: dict[tuple[str, tuple[str, ...]], int] = {("TSP", ("position",)): -1}


def observation_specs(env: Any, paths: Iterable[tuple[str, ...]]) -> dict[tuple[str, ...], Spec]:
    """The specs of those entries of an observation that have bounds, by path.

    Args:
        env: of Jumanji.
        paths: of the observation's entries.
    """
    found, spec, name_of_env = {}, env.observation_spec, type(env.unwrapped).__name__
    for path in paths:
        leaf = spec
        for name in path:
            leaf = leaf[name]
        # Bounds of unsigned numbers of 16 bits and more would be those of a dtype that the data does not have.
        kept = np.dtype(leaf.dtype) not in (np.dtype(bool), *map(np.dtype, ("uint16", "uint32", "uint64")))
        if isinstance(leaf, theirs.BoundedArray) and kept:
            found[path] = _bounded(leaf, _LOWER.get((name_of_env, path)))
    return found


def action_spec(spec: Any, *, categorical: bool) -> Spec:
    """The spec of an action.

    Args:
        spec: as Jumanji has it.
        categorical: choices are numbers, not one-hot rows.
    """
    if isinstance(spec, theirs.DiscreteArray):
        return Categorical(int(spec.num_values)) if categorical else OneHot(int(spec.num_values))
    if isinstance(spec, theirs.MultiDiscreteArray):
        sizes = np.asarray(spec.num_values)
        if categorical:
            return MultiCategorical(torch.from_numpy(np.array(sizes, np.int64)))
        return MultiOneHot([int(n) for n in sizes.reshape(-1)])
    if not isinstance(spec, theirs.BoundedArray):
        raise TypeError(f"Jumanji has actions of DiscreteArray, MultiDiscreteArray and BoundedArray, found {spec!r}.")
    return _bounded(spec)


def _bounded(spec: Any, lower: float | None = None) -> Spec:
    low, high = (
        torch.from_numpy(np.array(np.broadcast_to(np.asarray(bound), spec.shape)))
        for bound in (spec.minimum if lower is None else lower, spec.maximum)
    )
    return Bounded(low, high, shape=tuple(spec.shape), dtype=torch_dtype(spec.dtype))
