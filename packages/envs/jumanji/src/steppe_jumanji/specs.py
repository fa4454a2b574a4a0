"""Convert specs of Jumanji to specs of steppe."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
from jumanji import specs as jumanji_specs

from steppe.specs import Bounded, Categorical, MultiCategorical, MultiOneHot, OneHot, Spec
from steppe_jax import torch_dtype

__all__ = ["action_spec", "observation_specs"]

#: Lower bounds of entries whose values go below the bounds that Jumanji declares, by class of the environment and path.
#: TSP reports the position -1, no city, until the first step.
_LOWER: dict[tuple[str, tuple[str, ...]], int] = {("TSP", ("position",)): -1}


def observation_specs(env: Any, paths: Iterable[tuple[str, ...]]) -> dict[tuple[str, ...], Spec]:
    """Return the specs of the observation entries with bounds, by path.

    Args:
        env: an environment of Jumanji.
        paths: the paths of all entries of its observation.
    """
    specs, spec, env_class = {}, env.observation_spec, type(env.unwrapped).__name__
    for path in paths:
        leaf = spec
        for name in path:
            leaf = leaf[name]
        # Wide unsigned entries have another dtype in the data, so their bounds would have the wrong dtype.
        keeps_dtype = np.dtype(leaf.dtype) not in (np.dtype(bool), *map(np.dtype, ("uint16", "uint32", "uint64")))
        if isinstance(leaf, jumanji_specs.BoundedArray) and keeps_dtype:
            specs[path] = _bounded(leaf, _LOWER.get((env_class, path)))
    return specs


def action_spec(spec: jumanji_specs.Array, *, categorical: bool) -> Spec:
    """Convert the action spec of Jumanji.

    Args:
        spec: the spec of Jumanji.
        categorical: discrete actions are integers instead of one-hot vectors.

    Raises:
        TypeError: Jumanji's spec is of another class than DiscreteArray, MultiDiscreteArray and BoundedArray.
    """
    if isinstance(spec, jumanji_specs.DiscreteArray):
        return Categorical(int(spec.num_values)) if categorical else OneHot(int(spec.num_values))
    if isinstance(spec, jumanji_specs.MultiDiscreteArray):
        sizes = np.asarray(spec.num_values)
        if categorical:
            return MultiCategorical(torch.from_numpy(np.array(sizes, np.int64)))
        return MultiOneHot([int(n) for n in sizes.reshape(-1)])
    if not isinstance(spec, jumanji_specs.BoundedArray):
        raise TypeError(
            f"The action spec must be a DiscreteArray, MultiDiscreteArray or BoundedArray of Jumanji, found {spec!r}."
        )
    return _bounded(spec)


def _bounded(spec: jumanji_specs.BoundedArray, lower: float | None = None) -> Spec:
    low, high = (
        torch.from_numpy(np.array(np.broadcast_to(np.asarray(bound), spec.shape)))
        for bound in (spec.minimum if lower is None else lower, spec.maximum)
    )
    return Bounded(low, high, shape=tuple(spec.shape), dtype=torch_dtype(spec.dtype))
