"""Infos of agents and environments: conversion, defaults, validation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

import torch
from tensordict import TensorDict, TensorDictBase

from steppe.collectors import AgentDeclarations
from steppe.errors import InfoError, SpecError
from steppe.specs import CPU, Composite

__all__ = ["Infos", "agent_infos", "as_infos", "check_infos", "default_infos"]

#: Infos as callers pass them: a TensorDict ``[*R]``, or values ``[R, ...]`` by name.
Infos: TypeAlias = TensorDictBase | Mapping[str, object]


def agent_infos(
    declarations: AgentDeclarations, infos: Infos | None, label: str, first: Composite | None = None
) -> TensorDict | None:
    """Return the ``agent_info`` of a request, or the default of the agent.

    Returns None if the agent takes none.

    Args:
        declarations: the declarations of the agent.
        infos: the argument ``agent_info``.
        label: beginning of the error text, such as ``"The request"``.
        first: for an agent that declares no infos, the spec of those in the first request; None if there was none.

    Raises:
        InfoError: an entry is missing or unknown.
        SpecError: an entry has another shape or dtype.
    """
    if infos is None:
        return default_infos(declarations, label)
    spec, spec_name = declarations.info_spec, f"the agent_info_spec of {declarations.policy_name}"
    if spec is None or spec.is_empty():
        spec, spec_name = first, "the first request"
    rows = as_infos(infos, spec)
    if spec is not None:
        check_infos("agent_info", rows, spec, spec_name)
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
    if all((leaf := spec.get(key, None)) is not None and value.shape == leaf.shape for key, value in values.items()):
        return as_infos(default, spec)
    return as_infos(default)


def as_infos(infos: Infos, spec: Composite | None = None) -> TensorDict:
    """Convert infos to a TensorDict ``[*rows]``.

    Args:
        infos: a TensorDict, which is copied; or a dict of values, which may contain further dicts.
        spec: the spec of one row, if it is known. Dimensions of a value in front of the shape in the spec count rows,
            so a dict may hold a table ``[A, 1]``. Without a spec, the first dimension counts the rows.

    Raises:
        SpecError: the values of a dict have different numbers of rows.
    """
    if isinstance(infos, TensorDictBase):
        return infos.to_tensordict() if infos.device is None else infos.to(CPU)
    values = _tensors(infos)
    rows: torch.Size | None = None
    for key, value in values.items():
        leaf = None if spec is None else spec.get(key, None)
        own = value.shape[:1] if leaf is None else value.shape[: max(value.ndim - len(leaf.shape), 0)]
        if rows is not None and own != rows:
            raise SpecError(f"The infos have {_in_words(rows)} in one entry and {_in_words(own)} in {_name(key)!r}.")
        rows = own
    made = TensorDict(batch_size=rows or [])
    for key, value in values.items():
        made.set(key, value)
    return made


def _tensors(values: Mapping[Any, object], prefix: tuple[str, ...] = ()) -> dict[tuple[str, ...], torch.Tensor]:
    """Return the values of a dict, and of the dicts in it, as tensors by path."""
    tensors: dict[tuple[str, ...], torch.Tensor] = {}
    for key, value in values.items():
        path = (*prefix, *((key,) if isinstance(key, str) else key))
        if isinstance(value, (Mapping, TensorDictBase)):
            tensors.update(_tensors(value, path))
            continue
        try:
            tensors[path] = torch.as_tensor(value, device=CPU)
        except (TypeError, ValueError, RuntimeError) as error:
            raise SpecError(f"The info {_name(path)!r} must be numbers, found {value!r}: {error}") from None
    return tensors


def _in_words(rows: torch.Size) -> str:
    return f"{rows[0]} rows" if len(rows) == 1 else f"rows of shape {tuple(rows)}"


def _name(path: tuple[str, ...]) -> str | tuple[str, ...]:
    return path if len(path) > 1 else path[0]


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
