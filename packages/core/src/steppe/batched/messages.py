"""Rows that travel as TensorDicts: for data that has no fixed place in storage, such as text."""

from __future__ import annotations

from typing import Any

import torch
from tensordict import TensorDictBase, lazy_stack

from steppe.batched.lanes import LaneError

__all__ = ["run_rows", "stack_rows"]


def run_rows(op: str, envs: dict[int, Any], data: dict[int, Any]) -> dict[int, tuple[Any, Any]]:
    """Step or reset environments, each on its own TensorDict.

    Args:
        op: ``"step"``, ``"step_and_reset"`` or ``"reset"``.
        envs: environments by row.
        data: by row the TensorDict that it is given, or None, and keyword arguments for a reset.

    Returns:
        By row: ``next`` (None for a reset) and the following root (None for a step).

    Raises:
        LaneError: an environment raised.
    """
    found: dict[int, tuple[Any, Any]] = {}
    for row, (td, arguments) in data.items():
        try:
            if op == "reset":
                env = envs[row]
                found[row] = None, env.reset(td, **arguments).select(*env.observation_keys, *env.done_keys)
            elif op == "step":
                found[row] = envs[row].step(td).get("next"), None
            else:
                stepped, root = envs[row].step_and_maybe_reset(td)
                found[row] = stepped.get("next"), root.exclude(*envs[row].action_keys)
        except Exception as error:
            raise LaneError(row, "reset" if op == "reset" else "step") from error
    return found


def stack_rows(rows: list[TensorDictBase]) -> TensorDictBase:
    """Stack rows densely where shapes allow, lazily otherwise."""
    try:
        return torch.stack(rows, 0)
    except (RuntimeError, KeyError, ValueError):
        stacked: TensorDictBase = lazy_stack(rows, 0)
        return stacked
