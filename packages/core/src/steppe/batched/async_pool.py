"""AsyncEnvPool: environments that are sent work and asked for results, each at its own pace."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from tensordict import TensorDict, TensorDictBase

from steppe.batched.async_rows import UnequalRows, indices_of, rows_of, stack_as
from steppe.batched.base import BatchedEnv
from steppe.batched.crew import PATIENCE_AFTER_FAILURE
from steppe.batched.outlet import HostOutlet
from steppe.batched.report import EnvReport, merge
from steppe.errors import ActionError, ClosedError, NotSupported, SpecError, StateError, WorkerTimeout
from steppe.specs import Composite
from steppe.storage import TensorDictBuilder

__all__ = ["AsyncEnvPool", "Job"]

Stack = Literal["dense", "maybe_dense", "lazy"]
_STACKS = ("dense", "maybe_dense", "lazy")
_BACKENDS = ("threading", "multiprocessing")

#: What an operation is called, and the methods that send and receive it.
_NAMES = {"step": "step", "reset": "reset", "step_and_reset": "step_and_maybe_reset"}


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

    op: str
    data: TensorDictBase | None
    since: float
    ticket: Any = None
    ended: bool = False
    outcome: Any = None


class AsyncEnvPool(BatchedEnv):
    """Environments that work while the caller does something else: send to some, receive from whichever has ended.

    ``AsyncEnvPool(..., backend="threading")`` makes a :class:`ThreadingAsyncEnvPool`, ``backend="multiprocessing"`` a
    :class:`ProcessorAsyncEnvPool`. Each environment has a thread or process of its own, made at the first use (or by
    ``start``)::

        pool = AsyncEnvPool(["gym:Pendulum-v1"] * 8, backend="multiprocessing")
        pool.async_reset_send()
        while ...:
            td = pool.async_step_and_maybe_reset_recv(min_get=2)[1]   # the first time: pool.async_reset_recv(min_get=2)
            pool.async_step_and_maybe_reset_send(policy(td))

    Data of one environment has no batch, data of ``k`` has batch size ``[k]``. The entry ``"env_index"`` says which
    environments they are: an int, or a list or tensor of them; the argument ``env_index=`` goes before it. Results are
    sorted by it and carry it, as int64 ``[k]``. Data of the whole batch, ``[n]``, needs none.

    The calls of every environment (``reset``, ``step``, ``step_and_maybe_reset``, ``rollout``, ``set_seed``) work too,
    with batch size ``[n]`` and the data of a :class:`SerialEnv`, when no environment is at work.

    Several threads may send and receive at the same time (``start`` the pool first); ``close`` it when no other thread
    is in a call.

    Args:
        factories: ids or callables, one for each environment.
        backend: ``"threading"`` or ``"multiprocessing"``.
        stack: how rows become one TensorDict. ``"dense"``: contiguous; all environments must have equal specs.
            ``"lazy"``: a lazy stack, so that rows may differ. ``"maybe_dense"``: contiguous where possible.
        create_env_kwargs: keyword arguments for the factories, one dict or a list of them.
        step_timeout: seconds that an environment may be at work; None for no limit.
        mp_start_method: how processes start, see :class:`ParallelEnv`; for ``backend="multiprocessing"`` alone.
        device: where data comes out.

    Raises:
        StateError: sending to an environment whose result was not received, or receiving what was not sent.
        WorkerError: from receiving: an environment raised, with its traceback, or its process ended. Everything is
            stopped then; ``close`` is all that is left to call.
        WorkerTimeout: ``step_timeout`` passed (the same holds), or the ``timeout`` of a receiving call (nothing is lost
            or stopped).
        NotSupported: the environments' specs differ, with ``stack="dense"``.
    """

    def __new__(cls, *args: Any, backend: str | None = None, **kwargs: Any) -> AsyncEnvPool:
        if cls is not AsyncEnvPool:
            return object.__new__(cls)
        # Both are subclasses, which import this module.
        from steppe.batched.async_processes import ProcessorAsyncEnvPool
        from steppe.batched.async_threads import ThreadingAsyncEnvPool

        if backend not in (None, *_BACKENDS):
            raise SpecError(f"backend is one of {', '.join(map(repr, _BACKENDS))}, found {backend!r}.")
        return object.__new__(ProcessorAsyncEnvPool if backend == "multiprocessing" else ThreadingAsyncEnvPool)

    backend: str

    def __init__(
        self,
        factories: Sequence[Any],
        *,
        backend: str | None = None,
        stack: Stack = "dense",
        create_env_kwargs: Any = None,
        step_timeout: float | None = None,
        mp_start_method: str | None = None,
        device: Any = None,
    ) -> None:
        if backend not in (None, self.backend):
            raise SpecError(f"{type(self).__name__} has backend={self.backend!r}, found {backend!r}: leave it out.")
        if stack not in _STACKS:
            raise SpecError(f"stack is one of {', '.join(map(repr, _STACKS))}, found {stack!r}.")
        if not isinstance(factories, (list, tuple)) or not factories:
            raise SpecError(
                f"AsyncEnvPool takes a list with a factory for each environment, found {factories!r}: "
                "make it AsyncEnvPool([make] * n)."
            )
        if step_timeout is not None and step_timeout <= 0:
            raise SpecError(f"step_timeout is a number of seconds above 0, or None, found {step_timeout!r}.")
        more = self._start_arguments(len(factories), mp_start_method)
        super().__init__(len(factories), list(factories), create_env_kwargs=create_env_kwargs, device=device, **more)
        state = self.__dict__
        state["stack"] = stack
        state["step_timeout"] = step_timeout
        state["_jobs"] = {}
        state["_change"] = threading.Condition()
        state["_failure"] = None
        state["_unequal"] = None
        state["_builders"] = {}

    @property
    def num_envs(self) -> int:
        """How many environments there are."""
        return int(self.num_workers)

    # -- what the two classes do differently ---------------------------------------------------------------------

    def _start_arguments(self, n: int, mp_start_method: str | None) -> dict[str, Any]:
        raise NotImplementedError

    def _order(self, row: int, op: str, data: TensorDictBase | None) -> Any:
        """Have an environment begin; returns the ticket. Its inputs are in storage, or in ``data``."""
        raise NotImplementedError

    def _look(self) -> None:
        """Mark the jobs that have ended; put the first error in ``_failure``."""
        raise NotImplementedError

    def _await(self, timeout: float | None) -> None:
        """Sleep until a job may have ended, or ``timeout`` seconds. ``_change`` is held, and let go meanwhile."""
        raise NotImplementedError

    # -- layout ---------------------------------------------------------------------------------------------------

    def start(self) -> AsyncEnvPool:
        with self._change:  # reentrant: making environments asks for specs
            super().start()
        return self

    def _adopt(self, reports: list[EnvReport]) -> Composite | None:
        first = reports[0]
        differing = next((row for row, one in enumerate(reports) if one.specs != first.specs), None)
        if first.batch_size:
            raise NotSupported(
                f"Environment 0 is a batch itself, {first.batch_size}. Give one environment to each row, or use it "
                "without a pool around it."
            )
        if differing is not None and self.stack == "dense":
            raise NotSupported(
                f"Environments 0 and {differing} differ in their specs, and stack='dense' needs equal rows. Make the "
                "pool with stack='lazy' or stack='maybe_dense'."
            )
        if differing is None:
            row = super()._adopt(reports)
            root: dict[str, Any] = {}
            following: dict[str, Any] = {}
            for kind in ("observation", "done"):
                merge(root, first.specs[kind])
            for kind in ("observation", "reward", "done"):
                merge(following, first.specs[kind])
            self.__dict__["_row_specs"] = Composite(root), Composite(following)
            return row
        unequal = self.__dict__["_unequal"] = UnequalRows([one.specs for one in reports], self.stack)
        unequal.describe(self)
        self.__dict__["_buffered"] = False
        return None

    def _make_expectation(self) -> Any:
        return self._unequal if self._unequal is not None else super()._make_expectation()

    # -- sending --------------------------------------------------------------------------------------------------

    def async_reset_send(self, tensordict: TensorDictBase | None = None, env_index: Any = None) -> None:
        """Have environments begin an episode.

        Args:
            tensordict: data of these environments, whose entries that a reset does not write come back with the result;
                or None.
            env_index: which ones; by default those of ``tensordict["env_index"]``, or all.
        """
        self._send("reset", tensordict, env_index)

    def async_step_send(self, tensordict: TensorDictBase, env_index: Any = None) -> None:
        """Have environments act.

        Args:
            tensordict: ``[k]`` data with actions, or data of one environment without a batch. It is copied.
            env_index: which environments; by default those of ``tensordict["env_index"]``.

        Raises:
            StateError: one of them is at work, or its last result was not received. None is started then.
            ActionError: an action is missing, or of the wrong shape or dtype. None is started then.
        """
        self._send("step", tensordict, env_index)

    def async_step_and_maybe_reset_send(self, tensordict: TensorDictBase, env_index: Any = None) -> None:
        """Have environments act, and begin anew where an episode ends. See :meth:`async_step_send`."""
        self._send("step_and_reset", tensordict, env_index)

    def _send(self, op: str, tensordict: TensorDictBase | None, env_index: Any) -> None:
        what = f"async_{_NAMES[op]}_send"
        self._check_open(what)
        self.start()
        if op != "reset" and not isinstance(tensordict, TensorDictBase):
            raise SpecError(f"{what} takes a TensorDict with the actions, found {type(tensordict).__name__}.")
        rows, data = rows_of(tensordict, env_index, self.num_workers, what)
        with self._change:
            self._check_usable(what)
            self._check_free(rows, what)
            if op != "reset":
                for row, td in zip(rows, data, strict=True):
                    self._check_action(row, td)
            now = time.monotonic()
            for row, td in zip(rows, data, strict=True):
                if self._buffered and op != "reset":
                    self._write_row(row, td)
                elif self._buffered:
                    self._write_info(td.unsqueeze(0) if td is not None else None, [row], whole=True)
                job = Job(op, td, now)
                try:
                    job.ticket = self._order(row, op, td.exclude("next") if td is not None else None)
                except BaseException as error:
                    self.__dict__["_failure"] = error
                    self._jobs.clear()
                    self._change.notify_all()
                    self._stop(PATIENCE_AFTER_FAILURE)
                    raise
                self._jobs[row] = job

    def _check_usable(self, what: str) -> None:
        self._check_open(what)
        if self._failure is not None:
            raise ClosedError(
                f"{what}: this pool was stopped after an error ({type(self._failure).__name__}): close it, make a new "
                "one."
            )

    def _check_free(self, rows: list[int], what: str) -> None:
        for row in rows:
            job = self._jobs.get(row)
            if job is not None:
                name = _NAMES[job.op]
                state = "has done a {} that was not received" if job.ended else "is at work on a {}"
                raise StateError(
                    f"{what}: environment {row} {state.format(name)}. Receive it first: "
                    f"async_{name}_recv(env_index={row})."
                )

    def _check_idle(self, what: str) -> None:
        with self._change:
            self._check_usable(what)
            self._check_free(sorted(self._jobs), what)

    def _check_action(self, row: int, td: Any) -> None:
        if self._unequal is not None:
            self._unequal.check_row(row, td)
            return
        for key, leaf in self.full_action_spec.items(include_nested=True, leaves_only=True):
            value = td.get(key, None)
            if value is None:
                raise self._missing_action(td, key)
            if leaf is None or leaf.dtype is None or any(size < 0 for size in leaf.shape):
                continue
            if value.shape != leaf.shape[1:] or value.dtype is not leaf.dtype:
                raise ActionError(
                    f"The action {key!r} of environment {row} must have shape {tuple(leaf.shape[1:])} and dtype "
                    f"{leaf.dtype}, found {tuple(value.shape)} and {value.dtype}."
                )

    def _write_row(self, row: int, td: Any) -> None:
        for key, *_, tensor in (*self._actions, *self._carried):
            value = td.get(key, None)
            if value is not None:
                tensor[row].copy_(value)

    # -- receiving ------------------------------------------------------------------------------------------------

    def async_reset_recv(
        self, min_get: int = 1, env_index: Any = None, timeout: float | None = None, *, max_get: int | None = None
    ) -> TensorDictBase:
        """Return the first data of the episodes that have begun, ``[k]``. See :meth:`async_step_recv`."""
        return self._receive("reset", min_get, env_index, timeout, max_get)[0]

    def async_step_recv(
        self, min_get: int = 1, env_index: Any = None, timeout: float | None = None, *, max_get: int | None = None
    ) -> TensorDictBase:
        """Wait for steps and return all that have ended.

        Args:
            min_get: how many to wait for.
            env_index: the environments to receive from, an int or a list; any by default.
            timeout: seconds to wait at most; 0 looks without waiting.
            max_get: return at most as many, those that were sent first.

        Returns:
            ``[k]`` data that was sent, with ``"next"`` and ``"env_index"``, sorted by the latter. It never changes.

        Raises:
            StateError: fewer than ``min_get`` steps are under way, so that waiting would never end.
            WorkerTimeout: fewer than ``min_get`` ended in time. They stay, and can be received later.
            WorkerError: an environment raised, or its process ended; any environment of the pool, not only those of
                ``env_index``.
        """
        return self._receive("step", min_get, env_index, timeout, max_get)[0]

    def async_step_and_maybe_reset_recv(
        self, min_get: int = 1, env_index: Any = None, timeout: float | None = None, *, max_get: int | None = None
    ) -> tuple[TensorDictBase, TensorDictBase]:
        """Return steps, and the roots to go on from, as ``step_and_maybe_reset`` does. See :meth:`async_step_recv`."""
        return self._receive("step_and_reset", min_get, env_index, timeout, max_get)

    def _receive(self, op: str, min_get: int, env_index: Any, timeout: float | None, max_get: int | None) -> Any:
        what = f"async_{_NAMES[op]}_recv"
        for name, number in (("min_get", min_get), ("max_get", max_get if max_get is not None else min_get)):
            if isinstance(number, bool) or not isinstance(number, int) or number < 1:
                raise SpecError(f"{what}: {name} is a whole number >= 1, found {number!r}.")
        if max_get is not None and max_get < min_get:
            raise SpecError(f"{what}: max_get must not be below min_get, found {max_get} and {min_get}.")
        asked = None if env_index is None else set(indices_of(env_index, self.num_workers, what))
        end = None if timeout is None else time.monotonic() + timeout
        with self._change:
            self._check_usable(what)
            while True:
                self._look()
                if self._failure is not None:
                    break
                jobs = self._under_way(op, asked, min_get, what)
                ready = [row for row, job in jobs.items() if job.ended]
                if len(ready) >= min_get:
                    if max_get is not None and len(ready) > max_get:
                        ready = sorted(ready, key=lambda row: jobs[row].since)[:max_get]
                    ready.sort()
                    return self._gather(op, ready, [self._jobs.pop(row) for row in ready])
                if (limit := self._limit(end)) is not None and limit <= 0:
                    if self._failure is not None:
                        break
                    raise _too_few(what, _NAMES[op], ready, jobs, min_get, timeout)
                self._await(limit)
            failure = self._failure
            self._jobs.clear()
            self._change.notify_all()
        self._stop(PATIENCE_AFTER_FAILURE)
        raise failure

    def _under_way(self, op: str, asked: set[int] | None, min_get: int, what: str) -> dict[int, Job]:
        jobs = {row: job for row, job in self._jobs.items() if job.op == op and (asked is None or row in asked)}
        if len(jobs) >= min_get:
            return jobs
        name = _NAMES[op]
        of = "" if asked is None else f" of environments {sorted(asked)}"
        found = f"{len(jobs)} are" if jobs else "none is"
        others = {row: _NAMES[job.op] for row, job in sorted(self._jobs.items()) if job.op != op}
        hint = "".join(f" Environment {row} was sent a {other}." for row, other in list(others.items())[:3])
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
                    self.__dict__["_failure"] = self._too_late(row)
                    return 0.0
                limit = left if limit is None else min(limit, left)
        return limit

    def _too_late(self, row: int) -> WorkerTimeout:
        return WorkerTimeout(
            f"Worker {row}, at work on environment {row}, did not answer within {self.step_timeout} s.",
            worker=row,
            env=row,
        )

    # -- data -----------------------------------------------------------------------------------------------------

    def _gather(self, op: str, rows: list[int], jobs: list[Job]) -> tuple[TensorDictBase, Any]:
        """What has ended, as the caller gets it: data, and the following root of ``step_and_reset``."""
        index = torch.tensor(rows)
        sent = [job.data if job.data is not None else TensorDict({}, []) for job in jobs]
        if self._buffered:
            return self._gather_stored(op, rows, sent, index)
        if op == "reset":
            data = [td.update(job.outcome[1]) for td, job in zip(sent, jobs, strict=True)]
            return self._stack_rows(data).set("env_index", index), None
        data = [_with_next(td, job.outcome[0]) for td, job in zip(sent, jobs, strict=True)]
        stacked = self._stack_rows(data).set("env_index", index)
        if op == "step":
            return stacked, None
        return stacked, self._stack_rows([job.outcome[1] for job in jobs]).set("env_index", index.clone())

    def _gather_stored(self, op: str, rows: list[int], sent: list[Any], index: torch.Tensor) -> tuple[Any, Any]:
        root_spec, next_spec = self._row_specs
        if op == "reset":
            first = self._copied(root_spec, self._root_out, rows)
            data = self._stack_rows(sent).update(first) if any(not td.is_empty() for td in sent) else first
            if self.stack == "lazy":
                data = stack_as("lazy", list(data.unbind(0)))
            return data.set("env_index", index), None
        following = self._copied(next_spec, self._next_out, rows)
        if any("next" in td.keys() for td in sent):
            # Entries that the environment does not write, such as the state that a policy hands on, stay.
            data = self._stack_rows([_with_next(td, following[at]) for at, td in enumerate(sent)])
        else:
            data = self._stack_rows(sent).set("next", following)
        data.set("env_index", index)
        if op == "step":
            return data, None
        root = self.step_mdp(data)
        anew = torch.as_tensor(self._flags.was_reset[rows])
        if anew.any():
            first = self._copied(root_spec, self._root_out, rows)
            for key in first.keys(include_nested=True, leaves_only=True):
                value = first.get(key)
                mask = anew.reshape(-1, *(1,) * (value.ndim - 1))
                root.set(key, torch.where(mask, value, following.get(key)))
        return data, root

    def _copied(self, spec: Composite, outlet: HostOutlet, rows: list[int]) -> TensorDict:
        builder = self._builders.get((id(spec), len(rows)))
        if builder is None:
            builder = self._builders[id(spec), len(rows)] = TensorDictBuilder(spec, (len(rows),), device=self.device)
        copied: TensorDict = builder(outlet.take(np.asarray(rows)))
        return copied

    def _stack_rows(self, rows: list[TensorDictBase]) -> TensorDictBase:
        return stack_as(self.stack, rows)

    # -- as any environment ---------------------------------------------------------------------------------------

    def _step(self, tensordict: TensorDictBase) -> TensorDictBase:
        self.start()
        self._check_idle("step")
        return self._as_stack(super()._step(tensordict))

    def _reset(self, tensordict: TensorDictBase | None = None, **kwargs: Any) -> TensorDictBase:
        self.start()
        self._check_idle("reset")
        return self._as_stack(super()._reset(tensordict, **kwargs))

    def step_and_maybe_reset(self, tensordict: TensorDictBase) -> tuple[TensorDictBase, TensorDictBase]:
        self._check_open("step")
        self.start()
        self._check_idle("step_and_maybe_reset")
        return super().step_and_maybe_reset(tensordict)

    def step_in_storage(self, tensordict: TensorDictBase) -> Any:
        self._check_idle("step_in_storage")
        return super().step_in_storage(tensordict)

    def set_seed(self, seed: int | None = None, static_seed: bool = False) -> int | None:
        self.start()
        self._check_idle("set_seed")
        return super().set_seed(seed, static_seed)

    def step_mdp(self, tensordict: TensorDictBase) -> TensorDictBase:
        if self._unequal is not None:
            return self._unequal.step_mdp(tensordict)
        return super().step_mdp(tensordict)

    def _as_stack(self, data: TensorDictBase) -> TensorDictBase:
        return stack_as("lazy", list(data.unbind(0))) if self.stack == "lazy" and self._buffered else data

    def _stacked(
        self,
        op: str,
        tensordict: TensorDictBase | None,
        rows: list[int] | None = None,
        arguments: list[dict[str, Any]] | None = None,
    ) -> tuple[Any, Any]:
        wanted = list(range(self.num_workers)) if rows is None else rows
        if tensordict is not None:
            given = tensordict.unbind(0)
        data = {
            row: (
                None if tensordict is None else given[row].exclude("next", "env_index", "_step", "_reset"),
                arguments[row] if arguments else {},
            )
            for row in wanted
        }
        found = self._exchange(op, data)
        out: list[Any] = []
        for at, used in ((0, op != "reset"), (1, op != "step")):
            known = {row: outcome[at] for row, outcome in found.items()}
            out.append(self._stack_rows(self._filled(known)) if used else None)
        return out[0], out[1]

    def _filled(self, known: dict[int, TensorDictBase]) -> list[TensorDictBase]:
        """A row for each environment; those that were left out, whose data nobody looks at, have the right shapes."""
        if self._unequal is not None:
            return [known[row] if row in known else self._unequal.zero(row) for row in range(self.num_workers)]
        any_row = next(iter(known.values()))
        return [known.get(row, any_row) for row in range(self.num_workers)]

    def close(self, *, raise_if_closed: bool = True) -> None:
        super().close(raise_if_closed=raise_if_closed)
        self._jobs.clear()


def _with_next(td: TensorDictBase, following: TensorDictBase) -> TensorDictBase:
    before = td.get("next", None)
    return td.set("next", following if before is None else before.copy().update(following))


def _too_few(
    what: str, name: str, ready: list[int], jobs: dict[int, Job], min_get: int, timeout: float | None
) -> WorkerTimeout:
    missing = sorted(row for row in jobs if row not in ready)
    return WorkerTimeout(
        f"{what}: {len(ready)} of {min_get} {name}(s) ended within {timeout} s; environments {missing} are at work. "
        "Nothing is lost: receive again, with a lower min_get for what has ended.",
        worker=missing[0],
        env=missing[0],
    )
