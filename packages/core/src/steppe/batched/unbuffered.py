"""Rows that travel as TensorDicts: for data that has no fixed place in storage, such as text."""

from __future__ import annotations

from typing import Any

import torch
from tensordict import TensorDictBase, lazy_stack

from steppe.batched.operations import RESET, STEP
from steppe.specs import every_leaf_key
from steppe.workers import SubjectError

__all__ = ["run_rows", "stack_rows"]


def run_rows(op: int, envs: dict[int, Any], data: dict[int, Any]) -> dict[int, tuple[Any, Any]]:
    """Step or reset environments, each on its own TensorDict.

    Args:
        op: what; see :mod:`steppe.batched.operations`.
        envs: environments by row.
        data: by row the TensorDict that it is given, or None, and keyword arguments for a reset.

    Returns:
        By row: ``next`` (None for a reset) and the following root (None for a step).

    Raises:
        SubjectError: an environment raised.
    """
    found: dict[int, tuple[Any, Any]] = {}
    for row, (td, arguments) in data.items():
        try:
            if op == RESET:
                env = envs[row]
                keys = (*every_leaf_key(env.full_observation_spec), *env.done_keys)
                found[row] = None, env.reset(td, **arguments).select(*keys, strict=False)
            elif op == STEP:
                found[row] = envs[row].step(td).get("next"), None
            else:
                stepped, root = envs[row].step_and_maybe_reset(td)
                found[row] = stepped.get("next"), root
        except Exception as error:
            raise SubjectError(row, "reset" if op == RESET else "step") from error
    return found


def stack_rows(rows: list[TensorDictBase]) -> TensorDictBase:
    """Stack rows densely where shapes allow, lazily otherwise."""
    stack: Any = torch.stack  # of TensorDicts, which torch's types do not know
    try:
        stacked: TensorDictBase = stack(rows, 0)
    except (RuntimeError, KeyError, ValueError):
        stacked = lazy_stack(rows, 0)
    return stacked
