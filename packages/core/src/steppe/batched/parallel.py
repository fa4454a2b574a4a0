"""ParallelEnv: a batch that worker processes step."""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable
from typing import Any

import cloudpickle
import torch

from steppe.batched.base import BatchedEnv
from steppe.batched.board import Board
from steppe.batched.by_value import pickled
from steppe.batched.channel import usable_cores
from steppe.batched.crew import PATIENCE, PATIENCE_AFTER_FAILURE, Crew, other_process
from steppe.batched.dispatch import ask_row
from steppe.batched.ignored import take_ignored
from steppe.batched.lanes import LaneError, Lanes
from steppe.batched.launch import METHODS
from steppe.batched.messages import run_rows
from steppe.batched.report import EnvReport, make_envs, report
from steppe.batched.surroundings import gather
from steppe.batched.worker import RESET, RESET_ON_DATA, STEP, STEP_AND_RESET, describe
from steppe.batched.zygote import fork_server
from steppe.errors import ClosedError, SpecError, WorkerError
from steppe.storage import Storage

__all__ = ["ParallelEnv"]

_OF_WORKERS = (
    *("num_processes", "step_timeout", "mp_start_method", "caller_share"),
    *("num_threads", "num_sub_threads", "shutdown_timeout"),
)
OPS = {"step": STEP, "step_and_reset": STEP_AND_RESET, "reset": RESET, "reset_on_data": RESET_ON_DATA}


class ParallelEnv(BatchedEnv):
    """A batch whose environments are stepped by worker processes, several in each.

    Workers are forked from a server that has torch and steppe loaded, is started by the first ParallelEnv, and ends
    with this process. The main script is not run again: no ``if __name__ == "__main__"`` is needed. Factories travel by
    value, so lambdas and closures work. A worker is given the environment variables, ``sys.path``, the current folder,
    warning filters, the default dtype, backends and hidden or registered plugins as they are when it starts.

    A step is one round trip: actions are written into shared memory, workers write rows and reset those that ended.

    Args:
        num_workers: how many environments.
        create_env_fn: see :class:`BatchedEnv`.
        num_processes: how many processes share them; one for each usable core by default.
        step_timeout: seconds that a step or reset of the workers may take; None for no limit.
        mp_start_method: ``"forkserver"``, the same as None; ``"spawn"``: a new interpreter for each worker, seconds
            slower; ``"fork"``: copies of this process as it is, threads excepted.
        caller_share: this process is one of ``num_processes``: it steps the first environments itself while it waits.
            The fastest way where steps are short and all take as long. What those environments do to a process
            (crash, hang, print) they do to this one, and ``step_timeout`` does not cover them.
        num_threads: threads that torch uses in this process from the start of the workers on; None leaves them as they
            are.
        num_sub_threads: threads that torch uses in each worker. More than one cannot be had with
            ``mp_start_method="fork"``, where torch may hang.
        shutdown_timeout: seconds that ``close`` gives environments to close themselves; then their workers are killed.
        **kwargs: for :class:`BatchedEnv`.

    Raises:
        WorkerError: an environment raised, with the traceback, worker and environment, or its process ended. The other
            workers are stopped too; ``close`` is all that is left to call.
        WorkerTimeout: ``step_timeout`` passed.
        ClosedError: a use after such an error.
    """

    def __init__(
        self,
        num_workers: int,
        create_env_fn: Any,
        *,
        num_processes: int | None = None,
        step_timeout: float | None = None,
        mp_start_method: str | None = None,
        caller_share: bool = False,
        num_threads: int | None = None,
        num_sub_threads: int = 1,
        shutdown_timeout: float = PATIENCE,
        **kwargs: Any,
    ) -> None:
        super().__init__(num_workers, create_env_fn, **kwargs)
        settings = _settings(
            num_workers,
            num_processes=num_processes,
            step_timeout=step_timeout,
            mp_start_method=mp_start_method,
            caller_share=caller_share,
            num_threads=num_threads,
            num_sub_threads=num_sub_threads,
            shutdown_timeout=shutdown_timeout,
        )
        self.__dict__.update(settings, _crew=None, _own=None)

    def configure_parallel(self, **kwargs: Any) -> ParallelEnv:
        """Change how the workers run, before they start.

        Args:
            **kwargs: ``num_processes``, ``step_timeout``, ``mp_start_method``, ``caller_share``, ``num_threads``,
                ``num_sub_threads``, ``shutdown_timeout``, as in the constructor; and those that have no effect, with
                a warning.

        Returns:
            The batch itself.

        Raises:
            StateError: the workers have started.
            SpecError: a value is wrong; the batch stays as it was.
            TypeError: there is no such argument.
        """
        self._check_not_started("configure_parallel")
        others = {name: value for name, value in kwargs.items() if name not in _OF_WORKERS}
        given = take_ignored(type(self), others, self._ignored, _OF_WORKERS)
        now = {name: getattr(self, name) for name in _OF_WORKERS}
        new = {name: kwargs[name] for name in _OF_WORKERS if name in kwargs}
        self.__dict__.update(_settings(self.num_workers, **{**now, **new}))
        self.__dict__["_given"].update(given)
        return self

    def _open(self) -> None:
        n, p = self.num_workers, self.num_processes
        ends = [n * (w + 1) // p for w in range(p)]
        bounds = list(zip([0, *ends[:-1]], ends, strict=True))
        own = bounds.pop(0)[1] if self.caller_share else 0
        if self.num_threads is not None:
            torch.set_num_threads(self.num_threads)
        crew = Crew(bounds, self.mp_start_method)
        self.__dict__["_crew"], self.__dict__["_finalizer"] = (
            crew,
            weakref.finalize(self, crew.stop, self.shutdown_timeout),
        )
        self.__dict__["_bounds"] = bounds
        try:
            self._begin(crew, own)
        except BaseException:
            self._stop(PATIENCE_AFTER_FAILURE)
            raise

    def _begin(self, crew: Crew, own: int) -> None:
        surroundings = gather()
        for w, (first, end) in enumerate(crew.bounds):
            factories = pickled(self._factories[first:end])
            message = {"worker": w, "first_row": first, "factories": factories, "surroundings": surroundings}
            crew.send(w, {**message, "num_threads": self.num_sub_threads})
        self.__dict__["_own"] = _OwnShare(self._factories[:own]) if own else None
        reports = self._own.reports() if own else []
        for w in range(len(crew.bounds)):
            _, found, modules = crew.expect(w, "ready")
            reports += found
            if w == 0 and self.mp_start_method == "forkserver":
                fork_server().preload(modules)
        row = self._adopt(reports)
        if row is None:
            self._attach(crew, (None, self.num_workers, len(crew.bounds), 0), [])
            return
        storage = Storage(row, (self.num_workers,), kind="shared")
        handle = storage.handle()
        board, fd = Board.anonymous(len(crew.bounds), self.num_workers)
        try:
            message = (handle.spec, self.num_workers, len(crew.bounds), handle.nbytes)
            self._attach(crew, message, [handle.fd, fd])
        finally:
            os.close(fd)
        crew.board = board
        if self._own is not None:
            self._own.lanes = Lanes(self._own.envs, storage, board.flags)
        self._use(storage, board.flags)

    def _attach(self, crew: Crew, message: Any, fds: list[int]) -> None:
        for w in range(len(crew.bounds)):
            crew.send(w, message, fds)
        for w in range(len(crew.bounds)):
            crew.expect(w, "attached")

    def _check_open(self, what: str) -> None:
        super()._check_open(what)
        if self._running:
            self._staff()

    def _staff(self) -> Crew:
        crew: Crew | None = self._crew
        if crew is None:
            raise ClosedError("The workers of this ParallelEnv were stopped after an error: close it, make a new one.")
        if not crew.is_ours:
            raise other_process(self, crew.owner)
        return crew

    def _run(self, op: str, rows: list[int] | None) -> int:
        crew = self._staff()
        try:
            active, own = None, self._own
            meanwhile = own.stepper(op, rows) if own is not None else None
            if rows is not None:
                chosen = crew.board.flags.active
                chosen[:] = False
                chosen[rows] = True
                active = [bool(chosen[a:b].any()) for a, b in self._bounds]
            return crew.round(OPS[op], active, self.step_timeout, meanwhile)
        except BaseException:
            # Rows may be half-written and a worker gone: nothing of this batch can be used any more.
            self._stop(PATIENCE_AFTER_FAILURE)
            raise

    def _exchange(self, op: str, data: dict[int, Any]) -> dict[int, Any]:
        crew = self._staff()
        try:
            parts = {w: {row: td for row, td in data.items() if a <= row < b} for w, (a, b) in enumerate(self._bounds)}
            messages = {w: ("rows", op, part) for w, part in parts.items() if part}
            found: dict[int, Any] = {}
            if self._own is not None:
                found.update(self._own.exchange(op, data))
            for answer in crew.ask(messages, self.step_timeout).values():
                found.update(answer)
        except BaseException:
            self._stop(PATIENCE_AFTER_FAILURE)
            raise
        return found

    def _ask(self, path: tuple[str, ...], calls: list[Any]) -> list[Any]:
        self.start()
        crew = self._staff()
        messages = {
            w: ("ask", list(range(a, b)), path, cloudpickle.dumps(calls[a:b])) for w, (a, b) in enumerate(self._bounds)
        }
        values = self._own.ask(path, calls) if self._own is not None else []
        for answer in self._answers(crew, messages).values():
            values += cloudpickle.loads(answer)
        return values

    def _seed_rows(self, seeds: dict[int, Any]) -> None:
        crew = self._staff()
        if self._own is not None:
            self._own.seed(seeds)
        parts = [{row: seed for row, seed in seeds.items() if a <= row < b} for a, b in self._bounds]
        self._answers(crew, {w: ("seed", part) for w, part in enumerate(parts) if part})

    def _answers(self, crew: Crew, messages: dict[int, Any]) -> dict[int, Any]:
        try:
            return crew.ask(messages)
        except BaseException:
            if not crew.in_step:
                self._stop(PATIENCE_AFTER_FAILURE)
            raise

    @property
    def worker_pids(self) -> list[int]:
        """Process ids of the workers; empty before the start and after the end."""
        return self._crew.pids if self._crew is not None else []

    def _stop(self, patience: float | None = None) -> None:
        finalizer = self.__dict__.pop("_finalizer", None)
        if finalizer is not None and finalizer.detach() is not None:
            crew, self.__dict__["_crew"] = self._crew, None
            own, self.__dict__["_own"] = self._own, None
            crew.stop(self.shutdown_timeout if patience is None else patience)
            if own is not None and crew.is_ours:
                own.close()
            self._forget_storage()

    def close(self, *, raise_if_closed: bool = False) -> None:
        super().close(raise_if_closed=raise_if_closed)
        self._stop()


def _settings(
    n: int,
    *,
    num_processes: int | None,
    mp_start_method: str | None,
    caller_share: bool,
    num_sub_threads: int,
    shutdown_timeout: float,
    **others: Any,
) -> dict[str, Any]:
    """What the constructor was given of the workers of ``n`` environments, with ``num_processes`` worked out.

    Raises:
        SpecError: a value is wrong, or contradicts another.
    """
    if mp_start_method is None:
        mp_start_method = "forkserver"
    if mp_start_method not in METHODS:
        raise SpecError(f"mp_start_method is one of {', '.join(map(repr, METHODS))}, found {mp_start_method!r}.")
    share = bool(caller_share)
    least = 2 if share else 1
    wanted = max(least, usable_cores()) if num_processes is None else num_processes
    if isinstance(wanted, bool) or not isinstance(wanted, int) or wanted < least:
        raise SpecError(f"num_processes is a whole number >= {least}{' with caller_share' * share}, found {wanted!r}.")
    if share and n < 2:
        raise SpecError("caller_share divides environments between this process and others: it needs 2 or more.")
    threads = 1 if num_sub_threads is None else num_sub_threads
    if isinstance(threads, bool) or not isinstance(threads, int) or threads < 1:
        raise SpecError(f"num_sub_threads is a whole number >= 1, found {threads!r}.")
    if threads > 1 and mp_start_method == "fork":
        raise SpecError(
            f"num_sub_threads={threads} cannot be had with mp_start_method='fork': a forked worker would wait for "
            "threads that exist only in this process. Leave mp_start_method out."
        )
    patience = PATIENCE if shutdown_timeout is None else float(shutdown_timeout)
    if patience < 0:
        raise SpecError(f"shutdown_timeout is a number of seconds >= 0, found {shutdown_timeout!r}.")
    return {
        "num_sub_threads": threads,
        "shutdown_timeout": patience,
        "num_processes": min(n, wanted),
        "mp_start_method": mp_start_method,
        "caller_share": share,
        **others,
    }


class _OwnShare:
    """The environments that the caller steps itself, rows ``0`` to ``len(envs) - 1``."""

    def __init__(self, factories: list[Callable[[], Any]]) -> None:
        self.envs = make_envs(factories, 0, lambda row, error: _in_caller(LaneError(row, "__init__"), error))
        self.lanes: Any = None

    def reports(self) -> list[EnvReport]:
        """What they say of themselves, as workers report theirs."""
        return [report(env) for env in self.envs]

    def stepper(self, op: str, rows: list[int] | None) -> Callable[[], int]:
        """What this process does while its workers do the same to their rows."""
        lanes = None if rows is None else [row for row in rows if row < len(self.envs)]

        def run() -> int:
            try:
                if op in ("reset", "reset_on_data"):
                    everything = list(range(len(self.envs)))
                    self.lanes.reset(everything if lanes is None else lanes, on_data=op == "reset_on_data")
                    return 0
                found: int = self.lanes.step(lanes, reset=op == "step_and_reset")
                return found
            except LaneError as error:
                raise _in_caller(error, error.__cause__) from error.__cause__

        return run

    def exchange(self, op: str, data: dict[int, Any]) -> dict[int, Any]:
        """The same for data that travels in messages."""
        part = {row: td for row, td in data.items() if row < len(self.envs)}
        try:
            return run_rows(op, dict(enumerate(self.envs)), part)
        except LaneError as error:
            raise _in_caller(error, error.__cause__) from error.__cause__

    def ask(self, path: tuple[str, ...], calls: list[Any]) -> list[Any]:
        """Read or call an attribute in each."""
        try:
            return [ask_row(env, row, path, calls[row]) for row, env in enumerate(self.envs)]
        except LaneError as error:
            raise _in_caller(error, error.__cause__) from error.__cause__

    def seed(self, seeds: dict[int, Any]) -> None:
        """Seed those that are named."""
        for row, env in enumerate(self.envs):
            if row in seeds:
                env.set_seed(seeds[row])

    def close(self) -> None:
        """Close each."""
        for env in self.envs:
            env.close(raise_if_closed=False)


def _in_caller(error: LaneError, cause: BaseException | None) -> WorkerError:
    summary, text = describe(cause)
    return WorkerError(
        f"The caller's share raised in {error.doing} of environment {error.row}: {summary}\n\n{text}",
        env=error.row,
        remote_traceback=text,
    )
