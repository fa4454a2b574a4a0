"""The data of a pool's environments: what each is given, and what the caller gets of what has ended."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from tensordict import TensorDict, TensorDictBase

from steppe.batched.async_pool.env_index import stack_as
from steppe.batched.async_pool.jobs import Job, Order
from steppe.batched.operations import RESET, RESET_ON_DATA, STEP
from steppe.batched.rows import BatchRows
from steppe.batched.unbuffered import sent
from steppe.envs import ActionRule, EnvBase, missing_action, written_by_policy
from steppe.errors import ActionError
from steppe.specs import CPU

__all__ = ["PoolData"]


class PoolData:
    """Writes what single environments are sent, and collects what they give.

    Args:
        rows: the storage of the pool; None where data travels in messages.
        actions: the rules for the actions of each environment.
        masks: where each row's reset masks are in storage.
        stack: how rows become one TensorDict, see :class:`~steppe.batched.AsyncEnvPool`.
        passed_through: states that environments pass through, see :attr:`EnvBase.passed_through_keys`.
    """

    def __init__(
        self,
        rows: BatchRows | None,
        actions: list[list[ActionRule]],
        masks: list[torch.Tensor],
        stack: str,
        passed_through: tuple[Any, ...],
    ) -> None:
        self._rows, self._actions, self._masks, self._stack = rows, actions, masks, stack
        self._passed_through = passed_through

    # -- what an environment is given -----------------------------------------------------------------------------

    def check_action(self, row: int, td: Any) -> None:
        """Hold the actions of an environment against their rules; one of another dtype is converted in ``td``."""
        for rule in self._actions[row]:
            value = td.get(rule.key, None)
            if value is None:
                raise missing_action(td, rule.key)
            try:
                fitted = rule.fit(value, td.batch_size)
            except ActionError as error:
                raise ActionError(f"Environment {row}: {error}") from None
            if fitted is not value:
                td.set(rule.key, fitted)

    def write(self, op: int, row: int, td: Any) -> Order:
        """Write a row into storage; what to order, and the message where storage does not do."""
        by_message: tuple[Any, dict[str, Any]] = (sent(td, self._passed_through) if td is not None else None), {}
        own = self._rows
        if own is None:
            return op, by_message
        if op != RESET:
            self._put(row, td, (*own.actions, *own.carried))
            return op, None
        own.write_info(td.unsqueeze(0).get("env_info", None) if td is not None else None, [row], whole=True)
        known = [td is not None and td.get(key, None) is not None for key, *_ in own.carried]
        if not any(known):
            return op, None
        if not all(known):
            return op, by_message
        self._put(row, td, own.carried)
        for mask in self._masks:
            mask[row] = True
        return RESET_ON_DATA, None

    @staticmethod
    def _put(row: int, td: Any, leaves: Any) -> None:
        for key, *_, tensor in leaves:
            value = td.get(key, None)
            if value is not None:
                tensor[row].copy_(value)

    # -- what comes of it -----------------------------------------------------------------------------------------

    def gather(
        self, op: int, jobs: dict[int, Job], device: torch.device | None, step_mdp: Callable[[Any], TensorDictBase]
    ) -> Any:
        """What has ended, as the caller gets it: data, and for a step and reset the following root too.

        Args:
            op: the operation.
            jobs: what has ended, by row, sorted.
            device: where it comes out; None leaves it where it is.
            step_mdp: makes the following root of a step.
        """
        rows, own = list(jobs), self._rows
        index = torch.tensor(rows, device=device or CPU)
        empty = TensorDict({}, [], device=device)
        # Copies, because the rows stay as they are where they cannot be stacked.
        given = [(job.data if job.data is not None else empty).copy() for job in jobs.values()]
        if op == RESET:
            fresh = self._fresh(jobs, device)
            data = stack_as(self._stack, [td.update(new) for td, new in zip(given, fresh, strict=True)])
            return data.set("env_index", index)
        outcomes = [job.outcome for job in jobs.values()]
        if own is not None:
            at = np.asarray(rows)
            flat = own.next_out.take(at)
            self._put_written(given, flat)
            following = own.next_out.some(at, flat)
        if own is None or any("next" in td.keys() for td in given):
            # Entries that the environment does not write, such as the state that a policy hands on, stay.
            parts = following.unbind(0) if own is not None else [_placed(outcome[0], device) for outcome in outcomes]
            data = stack_as(self._stack, [EnvBase.put_next(td, part) for td, part in zip(given, parts, strict=True)])
        else:
            data = stack_as(self._stack, given).set("next", following)
        data.set("env_index", index)
        if op == STEP:
            return data
        if own is not None:
            return data, _root_after(own, step_mdp(data), flat, at)
        roots = []
        for row, td, outcome in zip(rows, given, outcomes, strict=True):
            kept = td.select(*(rule.key for rule in self._actions[row]))  # as step_mdp does
            roots.append(kept.update(_placed(outcome[1], device)))
        return data, stack_as(self._stack, roots).set("env_index", index.clone())

    def _put_written(self, given: list[TensorDictBase], flat: dict[Any, torch.Tensor]) -> None:
        """Put into ``flat`` the states that a policy has written, which environments only pass through."""
        for row, td in enumerate(given):
            written = written_by_policy(td, self._passed_through)
            for key in written.keys(True, True) if written is not None else ():
                flat[key][row] = written.get(key)  # type: ignore[union-attr]

    def _fresh(self, jobs: dict[int, Job], device: torch.device | None) -> list[TensorDictBase]:
        """The first data of each row."""
        own = self._rows
        if own is not None and all(job.outcome is None for job in jobs.values()):
            return list(own.root_out.some(np.asarray(list(jobs))).unbind(0))
        return [
            _placed(job.outcome[1], device) if job.outcome is not None else self._fresh({row: job}, device)[0]
            for row, job in jobs.items()
        ]


def _root_after(own: BatchRows, root: TensorDictBase, flat: dict[Any, torch.Tensor], at: Any) -> TensorDictBase:
    """The root that follows a step of some rows, with the first data of those that were reset."""
    anew = own.flags.was_reset[at]
    if anew.any():
        mask = torch.from_numpy(anew).to(root.device)
        for key, first in own.root_out.take(at).items():
            root.set(key, torch.where(mask.view((-1,) + (1,) * (first.ndim - 1)), first, flat[key]))
    return root


def _placed(data: TensorDictBase, device: torch.device | None) -> TensorDictBase:
    return data if device is None else data.to(device)
