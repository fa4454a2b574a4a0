"""What a pool has under way: sending work to environments, waiting for it, and the data that comes of it."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from tensordict import TensorDict, TensorDictBase

from steppe.batched.async_pool.rows import indices_of, rows_of, stack_as
from steppe.batched.backends.base import AsyncBackend
from steppe.batched.base import BatchedEnv
from steppe.batched.operations import RESET, RESET_ON_DATA, STEP, STEP_AND_RESET
from steppe.batched.rows import BatchRows
from steppe.envs import missing_action
from steppe.errors import ActionError, ClosedError, SpecError, StateError, WorkerTimeout
from steppe.specs import CPU
from steppe.workers import PATIENCE_AFTER_FAILURE

__all__ = ["AsyncWork", "Job"]

#: Operations, and what the methods that send and receive them are called.
NAMES = {STEP: "step", RESET: "reset", STEP_AND_RESET: "step_and_maybe_reset"}


@dataclass
class Job:
    """What one environment was sent, until it is received.

    Attributes:
        op: ``"step"``, ``"reset"`` or ``"step_and_reset"``.
        data: the row that was sent, a copy; None for a reset without data.
        since: when, by the monotonic clock.
        ticket: how the backend knows it again.
        ended: whether the environment has done it.
        outcome: ``next`` and following root where data travels in messages; None where it is in storage.
    """

    op: int
    data: TensorDictBase | None
    since: float
    ticket: Any = None
    ended: bool = False
    outcome: Any = None


class AsyncWork(BatchedEnv):
    """The work of an :class:`~steppe.batched.AsyncEnvPool`: what is under way, and what has come of it."""

    stack: str
    step_timeout: float | None
    min_get: int
    _backend: AsyncBackend

    def _begin_work(self) -> None:
        self._jobs: dict[int, Job] = {}
        # Reentrant, because making environments asks for specs, which makes environments.
        self._change = threading.Condition(threading.RLock())
        self._failure: BaseException | None = None
        self._over = ""  # the error that has ended it

    def _look(self) -> None:
        """Mark the jobs that have ended; put the first error in ``_failure``."""
        if self._failure is not None:
            # Its message has been read, though the word that announces it may have come only now.
            return
        backend = self._backend
        backend.check(self)
        for job in self._jobs.values():
            if not job.ended and backend.ended(job.ticket):
                try:
                    job.outcome = backend.result(job.ticket)
                except Exception as error:
                    self._failure = error
                    return
                job.ended, job.ticket = True, None

    def _await(self, timeout: float | None) -> None:
        """Sleep until a job may have ended, or ``timeout`` seconds. ``_change`` is held, and let go meanwhile."""
        self._backend.check(self)
        failure = self._backend.wait(self._jobs, timeout)
        if failure is not None:
            self._failure = self._failure or failure

    # -- who is free ----------------------------------------------------------------------------------------------

    def _check_usable(self, what: str) -> None:
        if self._over and not self.is_closed:
            raise ClosedError(f"{what}: this pool was stopped after an error ({self._over}): close it, make a new one.")
        super().check_open(what)

    def check_open(self, what: str) -> None:
        # Every call that is not asynchronous comes by here before it touches data.
        self._check_usable(what)
        with self._change:
            self._check_free(sorted(self._jobs), what)

    def _check_free(self, rows: list[int], what: str) -> None:
        for row in rows:
            job = self._jobs.get(row)
            if job is not None:
                name = NAMES[job.op]
                raise StateError(
                    f"{what}: environment {row} was sent a {name} that was not received. Receive it first: "
                    f"async_{name}_recv(env_index={row})."
                )

    # -- sending --------------------------------------------------------------------------------------------------

    def _send(self, op: int, tensordict: TensorDictBase | None, env_index: Any) -> None:
        what = f"async_{NAMES[op]}_send"
        self._check_usable(what)
        self.start()
        if tensordict is None and op != RESET:
            raise SpecError(f"{what} takes a TensorDict with the actions, found None.")
        if tensordict is not None and not isinstance(tensordict, TensorDictBase):
            raise SpecError(f"{what} takes a TensorDict, found {type(tensordict).__name__}.")
        rows, data = rows_of(tensordict, env_index, self.num_workers, what)
        with self._change:
            self._check_usable(what)
            self._check_free(rows, what)
            if op != RESET:
                for row, td in zip(rows, data, strict=True):
                    self._check_action(row, td)
            failure = self._set_to_work(op, rows, data)
        self._raise(failure)

    def _set_to_work(self, op: int, rows: list[int], data: list[Any]) -> BaseException | None:
        """Set environments to work; returns the error where one could not be."""
        now = time.monotonic()
        try:
            for row, td in zip(rows, data, strict=True):
                order, message = self._written(op, row, td)
                self._jobs[row] = Job(op, td, now, self._backend.order(row, order, message))
        except BaseException as error:
            return error
        return None

    def _raise(self, failure: BaseException | None) -> None:
        """Stop everything and raise, after an error."""
        if failure is None:
            return
        self._give_up(failure)
        try:
            raise failure
        finally:
            del failure  # it refers to this frame, and storage should not have to wait for the garbage collector

    def _check_action(self, row: int, td: Any) -> None:
        for rule in self._row_actions[row]:
            value = td.get(rule.key, None)
            if value is None:
                raise missing_action(td, rule.key)
            try:
                fitted = rule.fit(value, td.batch_size)
            except ActionError as error:
                raise ActionError(f"Environment {row}: {error}") from None
            if fitted is not value:
                td.set(rule.key, fitted)

    def _written(self, op: int, row: int, td: Any) -> tuple[int, tuple[Any, dict[str, Any]] | None]:
        """Write a row into storage; what to order, and the message where storage does not do."""
        by_message: tuple[Any, dict[str, Any]] = (td.exclude("next") if td is not None else None), {}
        own = self._rows
        if own is None:
            return op, by_message
        if op != RESET:
            self._put_row(row, td, (*own.actions, *own.carried))
            return op, None
        own.write_info(td.unsqueeze(0).get("env_info", None) if td is not None else None, [row], whole=True)
        known = [td is not None and td.get(key, None) is not None for key, *_ in own.carried]
        if not any(known):
            return op, None
        if not all(known):
            return op, by_message
        self._put_row(row, td, own.carried)
        if self._layout.masked:
            for group in self.done_groups:
                own.storage.tensors[group.reset_key][row] = True
        return RESET_ON_DATA, None

    def _put_row(self, row: int, td: Any, leaves: Any) -> None:
        for key, *_, tensor in leaves:
            value = td.get(key, None)
            if value is not None:
                tensor[row].copy_(value)

    # -- receiving ------------------------------------------------------------------------------------------------

    def _receive(self, op: int, min_get: int | None, env_index: Any, timeout: float | None, max_get: int | None) -> Any:
        what = f"async_{NAMES[op]}_recv"
        min_get = self.min_get if min_get is None else min_get
        for name, number in (("min_get", min_get), ("max_get", min_get if max_get is None else max_get)):
            if isinstance(number, bool) or not isinstance(number, int) or number < 1:
                raise SpecError(f"{what}: {name} is a whole number >= 1, found {number!r}.")
        if max_get is not None and max_get < min_get:
            raise SpecError(f"{what}: max_get must not be below min_get, found {max_get} and {min_get}.")
        self._check_usable(what)
        asked = None if env_index is None else set(indices_of(env_index, self.num_workers, what))
        with self._change:
            self._check_usable(what)
            rows = self._wait_for(op, asked, min_get, timeout, what, max_get)
            if rows is not None:
                if max_get is not None and len(rows) > max_get:
                    rows = sorted(sorted(rows, key=lambda row: self._jobs[row].since)[:max_get])
                data = self._gather(op, rows, [self._jobs[row] for row in rows])
                for row in rows:
                    del self._jobs[row]
                return data
        self._raise(self._failure)

    def _wait_for(
        self, op: int, asked: set[int] | None, min_get: int, timeout: float | None, what: str, max_get: int | None
    ) -> list[int] | None:
        """The rows that have ended, sorted, once there are enough; None after an error."""
        end = None if timeout is None else time.monotonic() + timeout
        # Who names both a most and a time collects until one of them is reached.
        wanted = min_get if end is None or max_get is None else max_get
        while True:
            rows = self._under_way(op, asked, min_get, what)
            self._look()
            if self._failure is not None:
                return None
            ready = [row for row in rows if self._jobs[row].ended]
            if len(ready) >= min(wanted, len(rows)):
                return ready
            limit = self._limit(end)
            if self._failure is not None:
                return None
            if len(ready) >= min_get and end is not None and time.monotonic() >= end:
                return ready
            if limit is not None and limit <= 0:
                busy = [row for row in rows if row not in ready]
                raise WorkerTimeout(
                    f"{what}: {len(ready)} of {min_get} {NAMES[op]}(s) ended within {timeout} s; environments {busy} "
                    "are at work. Nothing is lost: receive again, with a lower min_get for what has ended.",
                    worker=busy[0],
                    env=busy[0],
                )
            self._await(limit)
            self._check_usable(what)

    def _under_way(self, op: int, asked: set[int] | None, min_get: int, what: str) -> list[int]:
        rows = sorted(row for row, job in self._jobs.items() if job.op == op and (asked is None or row in asked))
        if len(rows) >= min_get:
            return rows
        name = NAMES[op]
        of = "" if asked is None else f" of environments {sorted(asked)}"
        found = f"{len(rows)} are" if rows else "none is"
        others = [(row, NAMES[job.op]) for row, job in sorted(self._jobs.items()) if job.op != op]
        hint = "".join(f" Environment {row} was sent a {other}." for row, other in others[:3])
        raise StateError(
            f"{what}: {min_get} {name}(s){of} asked for, but {found} under way.{hint} "
            f"Send first, with async_{name}_send, or receive what was sent."
        )

    def _limit(self, end: float | None) -> float | None:
        """Seconds until something must have happened; sets ``_failure`` where an environment is too late."""
        now = time.monotonic()
        limit = None if end is None else end - now
        if self.step_timeout is None:
            return limit
        for row, job in self._jobs.items():
            if not job.ended:
                left = job.since + self.step_timeout - now
                if left <= 0:
                    self._failure = self._too_late(row)
                limit = left if limit is None else min(limit, left)
        return limit

    def _too_late(self, row: int) -> WorkerTimeout:
        return WorkerTimeout(
            f"Worker {row}, at work on environment {row}, did not answer within {self.step_timeout} s.",
            worker=row,
            env=row,
        )

    def _give_up(self, error: BaseException) -> None:
        """Stop everything after an error."""
        with self._change:
            self._over, self._failure = type(error).__name__, None
            self._jobs.clear()
            self._change.notify_all()
        # Threads that end a job need what was held.
        self._stop(PATIENCE_AFTER_FAILURE)

    # -- data -----------------------------------------------------------------------------------------------------

    def _gather(self, op: int, rows: list[int], jobs: list[Job]) -> Any:
        """What has ended, as the caller gets it: data, and for a step and reset the following root too."""
        index = torch.tensor(rows, device=self.device or CPU)
        empty = TensorDict({}, [], device=self.device)
        # Copies, because the rows stay as they are where they cannot be stacked.
        sent = [(job.data if job.data is not None else empty).copy() for job in jobs]
        outcomes = [job.outcome for job in jobs]
        if op == RESET:
            data = stack_as(self.stack, [td.update(new) for td, new in zip(sent, self._fresh(rows, jobs), strict=True)])
            return data.set("env_index", index)
        own = self._rows
        if own is not None:
            at = np.asarray(rows)
            flat = own.next_out.take(at)
            following = own.next_out.some(at, flat)
        if own is None or any("next" in td.keys() for td in sent):
            # Entries that the environment does not write, such as the state that a policy hands on, stay.
            parts = following.unbind(0) if own is not None else [self._placed(outcome[0]) for outcome in outcomes]
            data = stack_as(self.stack, [self.put_next(td, part) for td, part in zip(sent, parts, strict=True)])
        else:
            data = stack_as(self.stack, sent).set("next", following)
        data.set("env_index", index)
        if op == STEP:
            return data
        if own is not None:
            return data, self._root_after(own, data, flat, at)
        roots = []
        for row, td, outcome in zip(rows, sent, outcomes, strict=True):
            kept = td.select(*(rule.key for rule in self._row_actions[row]))  # as step_mdp does
            roots.append(kept.update(self._placed(outcome[1])))
        return data, stack_as(self.stack, roots).set("env_index", index.clone())

    def _fresh(self, rows: list[int], jobs: list[Job]) -> list[TensorDictBase]:
        """The first data of each row."""
        if self._rows is not None and all(job.outcome is None for job in jobs):
            return list(self._rows.root_out.some(np.asarray(rows)).unbind(0))
        return [
            self._placed(job.outcome[1]) if job.outcome is not None else self._fresh([row], [job])[0]
            for row, job in zip(rows, jobs, strict=True)
        ]

    def _root_after(self, own: BatchRows, data: TensorDictBase, flat: dict[Any, torch.Tensor], at: Any) -> Any:
        root = self.step_mdp(data)
        anew = own.flags.was_reset[at]
        if anew.any():
            mask = torch.from_numpy(anew).to(self.device)
            for key, first in own.root_out.take(at).items():
                root.set(key, torch.where(mask.view((-1,) + (1,) * (first.ndim - 1)), first, flat[key]))
        return root

    def _placed(self, data: TensorDictBase) -> TensorDictBase:
        return data if self.device is None else data.to(self.device)
