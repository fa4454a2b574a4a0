"""Infos of agents and environments: conversion, defaults, validation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

import torch
from tensordict import TensorDict, TensorDictBase

from steppe.collectors import AgentDeclarations
from steppe.errors import InfoError, SpecError
from steppe.specs import CPU, Composite

__all__ = ["Infos", "agent_infos", "as_infos", "check_infos", "default_infos"]

#: Infos as callers pass them: a TensorDict ``[*R]``, or values ``[R, ...]`` by name.
Infos: TypeAlias = TensorDictBase | Mapping[str, object]


def agent_infos(declarations: AgentDeclarations, infos: Infos | None, label: str) -> TensorDict | None:
    """Return the ``agent_info`` of a request, or the default of the agent.

    Returns None if the agent takes none.

    Args:
        declarations: the declarations of the agent.
        infos: the argument ``agent_info``.
        label: beginning of the error text, such as ``"The request"``.

    Raises:
        InfoError: an entry is missing or unknown.
        SpecError: an entry has another shape or dtype.
    """
    if infos is None:
        return default_infos(declarations, label)
    rows = as_infos(infos)
    if declarations.info_spec is not None:
        check_infos("agent_info", rows, declarations.info_spec, f"the agent_info_spec of {declarations.policy_name}")
    return rows


def default_infos(declarations: AgentDeclarations, label: str) -> TensorDict | None:
    """Return the default info of the agent; None if it takes no info.

    The default is one row for all if its values have the shapes of ``agent_info_spec``, otherwise several rows.

    Args:
        declarations: the declarations of the agent.
        label: beginning of the error text, such as ``"The request"``.

    Raises:
        InfoError: the agent takes an info and has no default.
    """
    default, spec = declarations.info_default, declarations.info_spec
    if default is None:
        if spec is not None and not spec.is_empty():
            raise InfoError(
                f"{label} needs agent_info with {sorted(map(str, spec.keys()))}, found none, and "
                f"{declarations.policy_name} has no agent_info_default."
            )
        return None
    if isinstance(default, TensorDictBase) or spec is None:
        return as_infos(default)
    values = _tensors(default)
    if all(key in spec and value.shape == spec[key].shape for key, value in values.items()):
        return TensorDict(values)
    return as_infos(values)


def as_infos(infos: Infos) -> TensorDict:
    """Convert infos to a TensorDict ``[rows]``.

    The first dimension of a dict's values counts the rows.

    Raises:
        SpecError: the values of a dict have different numbers of rows.
    """
    if isinstance(infos, TensorDictBase):
        return infos.to_tensordict() if infos.device is None else infos.to(CPU)
    values = _tensors(infos)
    shapes = {key: value.shape[:1] for key, value in values.items()}
    rows = min(shapes.values(), key=len, default=torch.Size([]))
    for key, shape in shapes.items():
        if rows and shape != rows:
            raise SpecError(f"The infos have {rows[0]} rows in one entry and {shape[0]} in {key!r}.")
    return TensorDict(values, batch_size=rows)


def _tensors(values: Mapping[str, object]) -> dict[str, torch.Tensor]:
    return {key: torch.as_tensor(value, device=CPU) for key, value in dict(values).items()}


def check_infos(name: str, infos: TensorDictBase, spec: Composite, spec_name: str) -> None:
    """Validate infos against the spec of one row.

    Args:
        name: ``"agent_info"`` or ``"env_info"``, for errors.
        infos: rows.
        spec: the spec of one row.
        spec_name: the spec in words, for errors.

    Raises:
        InfoError: an entry is missing or unknown.
        SpecError: an entry has another shape or dtype.
    """
    expected = {key if isinstance(key, str) else tuple(key) for key in spec.keys(True, True)}
    actual = set(infos.keys(True, True))
    if expected != actual:
        raise InfoError(
            f"{name} must have {sorted(map(str, expected))}, as {spec_name} says, found {sorted(map(str, actual))}."
        )
    for key in actual:
        leaf, value = spec[key], infos.get(key)
        if value.dtype != leaf.dtype:
            raise SpecError(f"{name}[{key!r}] must have dtype {leaf.dtype}, found {value.dtype}.")
        if tuple(value.shape[infos.batch_dims :]) != tuple(leaf.shape):
            raise SpecError(
                f"{name}[{key!r}] must have shape {tuple(leaf.shape)} in each row, found "
                f"{tuple(value.shape[infos.batch_dims :])}."
            )
