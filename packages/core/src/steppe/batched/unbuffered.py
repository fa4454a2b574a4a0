"""Rows that are sent as TensorDicts, because storage cannot hold the call.

The specs of rows differ, a reset has arguments or only a part of a state, or gradients pass through the environments.
"""

from __future__ import annotations

from typing import Any

import torch
from tensordict import TensorDictBase, lazy_stack

from steppe.batched.batch_layout import BatchLayout
from steppe.batched.operations import RESET, STEP
from steppe.envs import written_by_policy
from steppe.specs import OUTPUT_KINDS, every_leaf_key
from steppe.workers import ItemError

__all__ = ["Messages", "row_to_send", "run_rows", "stack_rows"]


class Messages:
    """Make the messages to the environments of a batch, and one TensorDict of their answers.

    Args:
        layout: the layout of the batch.
        n: the number of environments.
    """

    def __init__(self, layout: BatchLayout, n: int) -> None:
        self._layout, self._n = layout, n

    def to_envs(
        self,
        tensordict: TensorDictBase | None,
        rows: list[int] | None = None,
        arguments: list[dict[str, Any]] | None = None,
    ) -> dict[int, tuple[Any, dict[str, Any]]]:
        """Return the messages, as :func:`run_rows` takes them.

        Args:
            tensordict: data of the whole batch, or None.
            rows: the rows to step or reset; all by default.
            arguments: keyword arguments of a reset, for each environment.
        """
        data = tensordict.unbind(0) if tensordict is not None else [None] * self._n
        chosen = range(self._n) if rows is None else rows
        return {row: (self.to_env(data[row]), arguments[row] if arguments else {}) for row in chosen}

    def to_env(self, row: Any) -> Any:
        """Return the part of a row that its environment needs; None for None."""
        if row is None:
            return None
        row = row_to_send(row, self._layout.passed_through)
        if self._layout.masked:
            return row if row.device is None or row.device.type == "cpu" else row.to("cpu")
        # The mask has chosen the row.
        return row.exclude("_step", "_reset")

    def from_envs(self, results: dict[int, Any]) -> tuple[TensorDictBase | None, TensorDictBase | None]:
        """Return ``next`` and the following root of the batch from results of :func:`run_rows`; None if missing."""
        example = next(iter(results.values()))
        next_, root = (
            None
            if example[i] is None
            else stack_rows(
                [
                    results[row][i] if row in results else self._stand_in(kinds, row, example[i])
                    for row in range(self._n)
                ]
            )
            for i, kinds in enumerate((OUTPUT_KINDS, ("observation", "done")))
        )
        return next_, root

    def _stand_in(self, kinds: tuple[str, ...], row: int, other: Any) -> Any:
        """Return data for a row that was left out, which the caller replaces: of another row if specs are equal."""
        if self._layout.alike:
            return other
        out = self._layout.specs[kinds[0]][row].zero()
        for kind in kinds[1:]:
            out.update(self._layout.specs[kind][row].zero())
        return out


def row_to_send(row: TensorDictBase, passed_through: tuple[Any, ...]) -> TensorDictBase:
    """Copy a row without ``next``, except for states that a policy has written there.

    Args:
        row: data of one environment.
        passed_through: see :attr:`EnvBase.passed_through_keys`.
    """
    written = written_by_policy(row, passed_through)
    row = row.exclude("next")
    return row if written is None else row.set("next", written)


def run_rows(op: int, envs: dict[int, Any], data: dict[int, Any]) -> dict[int, tuple[Any, Any]]:
    """Step or reset environments, each on its own TensorDict.

    Args:
        op: the operation, see :mod:`steppe.batched.operations`.
        envs: environments by row.
        data: by row the TensorDict for the environment, or None, and keyword arguments of a reset.

    Returns:
        By row: ``next`` (None for a reset) and the following root (None for a step).

    Raises:
        ItemError: an environment raised.
    """
    results: dict[int, tuple[Any, Any]] = {}
    for row, (td, arguments) in data.items():
        try:
            if op == RESET:
                env = envs[row]
                keys = (*every_leaf_key(env.full_observation_spec), *env.done_keys)
                results[row] = None, env.reset(td, **arguments).select(*keys, strict=False)
            elif op == STEP:
                results[row] = envs[row].step(td).get("next"), None
            else:
                stepped, root = envs[row].step_and_maybe_reset(td)
                results[row] = stepped.get("next"), root
        except Exception as error:
            raise ItemError(row, "reset" if op == RESET else "step") from error
    return results


def stack_rows(rows: list[TensorDictBase]) -> TensorDictBase:
    """Stack rows densely if their shapes are equal, otherwise lazily."""
    stack: Any = torch.stack  # of TensorDicts, which torch's types do not know
    try:
        stacked: TensorDictBase = stack(rows, 0)
    except (RuntimeError, KeyError, ValueError):
        stacked = lazy_stack(rows, 0)
    return stacked
