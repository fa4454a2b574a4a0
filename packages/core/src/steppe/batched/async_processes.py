"""ProcessorAsyncEnvPool: a pool whose environments have a worker process each."""

from __future__ import annotations

from typing import Any

from steppe.batched.async_pool import AsyncEnvPool
from steppe.batched.parallel import OPS, ParallelEnv
from steppe.errors import WorkerError

__all__ = ["ProcessorAsyncEnvPool"]


class ProcessorAsyncEnvPool(AsyncEnvPool, ParallelEnv):
    """An :class:`AsyncEnvPool` whose environments have a worker process each.

    The workers, the shared memory and what happens to errors are those of :class:`ParallelEnv`: data of fixed shapes
    is written into shared memory and a word tells the worker; other data, and that of unequal environments, travels in
    messages.
    """

    backend = "multiprocessing"

    def _start_arguments(self, n: int, mp_start_method: str | None) -> dict[str, Any]:
        self.__dict__["_leading"] = False
        return {"num_processes": n, "mp_start_method": mp_start_method}

    def _open(self) -> None:
        super()._open()
        self.__dict__["_any"] = self._crew.waiter_for_any(messages=True)

    # -- asynchronous ---------------------------------------------------------------------------------------------

    def _order(self, row: int, op: str, message: tuple[Any, dict[str, Any]] | None) -> Any:
        crew = self._staff()
        if message is None:
            return crew.order(row, OPS[op])
        crew.send(row, ("rows", op, {row: message}))
        return None

    def _look(self) -> None:
        if self._failure is not None:
            # Its message has been read, though the word that announces it may have come only now.
            return
        crew = self._staff()
        try:
            for row, job in self._jobs.items():
                if job.ended:
                    continue
                if job.ticket is None:
                    if crew.connections[row].poll(0):
                        job.outcome, job.ended = crew.expect(row, "done")[1][row], True
                elif crew.answered(row, job.ticket):
                    crew.check(row)
                    job.ended = True
        except WorkerError as error:
            self.__dict__["_failure"] = error

    def _await(self, timeout: float | None) -> None:
        if self._leading:
            # Another thread waits for the workers, and tells.
            self._change.wait(timeout)
            return
        crew = self._staff()
        if crew.board is not None and crew.gate.spin(self._something_ended):
            return
        self.__dict__["_leading"] = True
        self._change.release()
        try:
            heard = self._any.wait(timeout)
        finally:
            self._change.acquire()
            self.__dict__["_leading"] = False
            self._change.notify_all()
        for fd in heard:
            job = self._jobs.get(crew.worker_at(fd))
            if job is None or job.ended or job.ticket is not None:
                # No message is due but an error, or the end of its process.
                try:
                    crew.died(fd)
                except WorkerError as error:
                    self.__dict__["_failure"] = self._failure or error

    def _something_ended(self) -> bool:
        answered = self._crew.answered
        return any(not job.ended and answered(row, job.ticket) for row, job in self._jobs.items())

    # -- as any environment ---------------------------------------------------------------------------------------

    def _ask(self, path: tuple[str, ...], calls: list[Any]) -> list[Any]:
        self._check_asked(path)
        return super()._ask(path, calls)
