"""PoolData: the inputs and results of single environments of a pool."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Literal

import numpy as np
import torch
from tensordict import TensorDict, TensorDictBase, lazy_stack

from steppe.batched import RESET, STEP_AND_RESET, BatchLayout, BatchRows, row_to_send, stack_rows
from steppe.envs import ActionRule, EnvBase, missing_action, write_begun, written_by_policy
from steppe.errors import ActionError, SpecError
from steppe.specs import CPU
from steppe_pools.pending import Message, PendingCall

__all__ = ["PoolData", "Stack", "stack_as"]

Stack = Literal["dense", "maybe_dense", "lazy"]


class PoolData:
    """Write the inputs of single environments, and builds the results of their calls.

    Args:
        rows: the storage of the pool; None if data travels in messages.
        actions: the rules for the actions of each environment.
        layout: the layout of the pool.
        stack: how rows become one TensorDict; see :class:`~steppe_pools.AsyncEnvPool`.

    Attributes:
        alike: whether the specs of all environments are equal.
    """

    def __init__(
        self,
        rows: BatchRows | None,
        actions: list[list[ActionRule]],
        layout: BatchLayout,
        *,
        stack: Stack,
    ) -> None:
        self._rows, self._actions, self._stack = rows, actions, stack
        self.alike, self._passed_through = layout.alike, layout.passed_through
        # Environments on TensorDicts may read their data at a reset.
        self._resets_on_data = not layout.on_arrays
        #: The entries that a step reads from storage.
        self._keys = [key for key, *_ in (*rows.actions, *rows.root_inputs)] if rows is not None else []

    # -- inputs ---------------------------------------------------------------------------------------------------

    def check_action(self, row: int, td: TensorDictBase) -> None:
        """Validate the actions of an environment.

        Actions of another dtype are converted in ``td``.

        Raises:
            ActionError: an action is missing, or does not fit its spec.
        """
        for rule in self._actions[row]:
            value = td.get(rule.key, None)
            if value is None:
                raise missing_action(td, rule.key)
            try:
                action = rule.fit(value, td.batch_size)
            except ActionError as error:
                raise ActionError(f"Environment {row}: {error}") from None
            if action is not value:
                td.set(rule.key, action)

    def write(self, op: int, row: int, td: TensorDictBase | None) -> Message | None:
        """Write the inputs of a call into storage.

        Returns them as a message if they have no place there.
        """
        storage = self._rows
        by_message = storage is None
        if storage is not None and op == RESET:
            env_info = td.unsqueeze(0).get("env_info", None) if td is not None else None
            storage.write_info(env_info, [row], whole=True)
            if td is not None and self._resets_on_data:
                by_message = any(td.get(key, None) is not None for key, *_ in storage.root_inputs)
        elif storage is not None and td is not None:
            for key in self._keys:
                value = td.get(key, None)
                if value is not None:
                    storage.storage.tensors[key][row].copy_(value)
                else:
                    storage.fill_root(key, [row])
        return (None if td is None else row_to_send(td, self._passed_through), {}) if by_message else None

    # -- results --------------------------------------------------------------------------------------------------

    def gather(
        self,
        op: int,
        calls: dict[int, PendingCall],
        device: torch.device | None,
        step_mdp: Callable[[TensorDictBase], TensorDictBase],
    ) -> tuple[TensorDictBase, TensorDictBase | None]:
        """Return the data of calls that have ended.

        If ``op`` steps and resets, also return the following roots.

        Args:
            op: the operation.
            calls: the calls by row, sorted.
            device: device of the returned data. None: unchanged.
            step_mdp: makes the following root of a step.
        """
        storage, at = self._rows, np.asarray(list(calls))
        nothing, index = TensorDict({}, [], device=device), torch.tensor(at, device=device or CPU)
        # Copies, because the calls must stay unchanged if their rows cannot be stacked.
        inputs = [(nothing if call.data is None else call.data).copy() for call in calls.values()]
        if op == RESET:
            fresh = self._fresh(calls, device)
            data = stack_as(self._stack, [td.update(fresh[row]) for row, td in zip(calls, inputs, strict=True)])
        elif storage is None:
            data = self._with_nexts(inputs, [_moved(call.outcome[0], device) for call in calls.values()])
        elif any("next" in td.keys() for td in inputs):
            data = self._with_nexts(inputs, storage.next_out.some(at).unbind(0))
        else:
            data = stack_as(self._stack, inputs).set("next", storage.next_out.some(at))
        data.set("env_index", index)
        if op != STEP_AND_RESET:
            return data, None
        if storage is None:
            roots = []
            for (row, call), td in zip(calls.items(), inputs, strict=True):
                kept = td.select(*(rule.key for rule in self._actions[row]))  # step_mdp does the same
                roots.append(kept.update(_moved(call.outcome[1], device)))
            return data, stack_as(self._stack, roots).set("env_index", index.clone())
        root, was_reset = step_mdp(data), storage.flags.was_reset[at]
        return data, write_begun(root, storage.root_out.begun(root, was_reset, at)) if was_reset.any() else root

    def _fresh(self, calls: dict[int, PendingCall], device: torch.device | None) -> dict[int, TensorDictBase]:
        """Return the first data of episodes, by row.

        It is read from storage, or from the environment's message.
        """
        fresh = {row: _moved(call.outcome[1], device) for row, call in calls.items() if call.outcome[1] is not None}
        in_storage = [row for row in calls if row not in fresh]
        if in_storage:
            assert self._rows is not None
            fresh.update(zip(in_storage, self._rows.root_out.some(np.asarray(in_storage)).unbind(0), strict=True))
        return fresh

    def _with_nexts(self, inputs: list[TensorDictBase], nexts: Iterable[TensorDictBase]) -> TensorDictBase:
        """Stack rows with their ``next``.

        Entries of ``next`` that only a policy has written stay.
        """
        parts = []
        for td, following in zip(inputs, nexts, strict=True):
            # An environment copies the old state to `next`. If a policy has written a new one there, restore it.
            written = written_by_policy(td, self._passed_through)
            parts.append(EnvBase.put_next(td, following if written is None else following.update(written)))
        return stack_as(self._stack, parts)


def _moved(data: TensorDictBase | None, device: torch.device | None) -> TensorDictBase:
    assert data is not None
    return data if device is None else data.to(device)


def stack_as(stack: Stack, rows: list[TensorDictBase]) -> TensorDictBase:
    """Stack rows along a new first dimension.

    Raises:
        SpecError: ``stack`` is ``"dense"`` and the rows differ.
    """
    if stack == "maybe_dense":
        return stack_rows(rows)
    try:
        return lazy_stack(rows, 0) if stack == "lazy" else TensorDict.stack(rows, 0)
    except (RuntimeError, KeyError, ValueError) as error:
        raise SpecError(
            f"The rows differ, so they cannot become one contiguous TensorDict: {error} Send rows with the same "
            'entries, or make the pool with stack="maybe_dense" or stack="lazy". Nothing is lost: receive the rows '
            "one by one, with env_index."
        ) from error
