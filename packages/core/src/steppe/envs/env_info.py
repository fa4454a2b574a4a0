"""``reset(env_info=...)``: the values of a reset, checked against ``env_info_spec``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch
from tensordict import TensorDictBase

from steppe.errors import SpecError
from steppe.specs import CPU, Composite

if TYPE_CHECKING:
    from steppe.envs.env_attributes import EnvAttributes

__all__ = ["env_info_values", "info_for_library"]

_DECLARE = (
    "Declare it in the __init__ of one environment: self.env_info_spec = Composite({name}=Unbounded(shape, "
    "dtype=...)). _reset then finds it at ('env_info', '{name}') of its tensordict, reset_into in its env_info. "
    "Options of a library's reset are given as env.reset(options={{...}})."
)


def env_info_values(env: EnvAttributes, info: Mapping[str, Any], *, rows: int | None = None) -> dict[str, torch.Tensor]:
    """Return the values of a reset as tensors of the dtypes of ``env.env_info_spec``.

    Args:
        env: the environment.
        info: a value for each key of its ``env_info_spec``.
        rows: for how many rows of the batch the values are; all by default.

    Raises:
        SpecError: a key is missing or unknown, a value has another shape, or the environment takes none.
    """
    spec = env.env_info_spec
    names, info_names = sorted(spec.keys(), key=str), sorted(info.keys(), key=str)
    if info_names != names:
        kind = type(env).__name__
        if names:
            raise SpecError(f"env_info of {kind} has {names}, as its env_info_spec says, found {info_names}.")
        raise SpecError(f"{kind} takes no env_info, and was given {info_names}. {_DECLARE.format(name=info_names[0])}")
    values = {}
    for name in names:
        leaf = spec[name]
        if isinstance(leaf, Composite):
            raise SpecError(f"env_info is flat, one value for each name, but the env_info_spec nests {name!r}.")
        value = torch.as_tensor(info[name], dtype=leaf.dtype, device=leaf.device or CPU)
        expected = tuple(leaf.shape) if rows is None else (rows, *leaf.shape[1:])
        if env.batch_locked and tuple(value.shape) != expected:
            raise SpecError(f"env_info[{name!r}] must have shape {expected}, found {tuple(value.shape)}.")
        values[name] = value
    return values


def info_for_library(info: TensorDictBase | None) -> dict[str, Any] | None:
    """Return one row of env_info as Python numbers and lists."""
    if info is None:
        return None
    return {str(key): value.tolist() if isinstance(value, torch.Tensor) else value for key, value in info.items()}
