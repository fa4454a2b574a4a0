"""ParallelEnv: a batch in worker processes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from steppe.batched.backends.processes import Processes
from steppe.batched.base import BatchedEnv
from steppe.batched.ignored import take_ignored
from steppe.errors import ArgumentError
from steppe.systems import usable_cores
from steppe.workers import SHUTDOWN_TIMEOUT, check_method

__all__ = ["ParallelEnv"]

_OF_WORKERS = (
    *("num_processes", "step_timeout", "mp_start_method", "caller_share"),
    *("num_threads", "num_sub_threads", "shutdown_timeout"),
)


class ParallelEnv(BatchedEnv):
    """A batch whose environments are stepped by worker processes, several in each.

    Workers are forked from a server that has torch and steppe loaded, is started by the first ParallelEnv, and ends
    with this process. The main script is not run again: no ``if __name__ == "__main__"`` is needed. Factories travel by
    value, so lambdas and closures work. A worker takes over environment variables, ``sys.path``, the current folder,
    warning filters, the default dtype, backends and hidden or registered plugins as they are when it starts.

    A step is one round trip: actions are written into shared memory, workers write rows and reset those that ended.

    Args:
        num_workers: the number of environments; ``num_envs`` is another name of this argument.
        create_env_fn: see :class:`BatchedEnv`.
        num_processes: the number of processes that share them (default: one for each usable core).
        step_timeout: seconds that a step or reset of the workers may take; None for no limit.
        mp_start_method: ``"forkserver"``, the same as None; ``"spawn"``: a new interpreter for each worker, seconds
            slower; ``"fork"``: copies of this process as it is, without its threads.
        caller_share: this process is one of ``num_processes``: it steps the first environments itself while it waits.
            This is the fastest choice if steps are short and take equally long. If one of these environments crashes,
            hangs or prints, it does so in this process, and ``step_timeout`` does not cover it.
        num_threads: threads that torch uses in this process once the workers start; None leaves the number
            unchanged.
        num_sub_threads: threads that torch uses in each worker. More than one is refused with
            ``mp_start_method="fork"``, because torch may hang.
        shutdown_timeout: seconds that ``close`` gives environments to close themselves; then their workers are killed.
            Also the seconds that workers have to finish a step that Ctrl-C interrupts.
        **kwargs: for :class:`BatchedEnv`.

    Raises:
        WorkerError: an environment raised (the error has its traceback, worker and environment), or its process ended.
            All workers are stopped; the batch can only be closed then.
        WorkerTimeout: ``step_timeout`` passed.
        ClosedError: a use after such an error.
        NotSupported: this system has no worker processes.
    """

    def __init__(
        self,
        num_workers: int | None = None,
        create_env_fn: Any = None,
        *,
        num_processes: int | None = None,
        step_timeout: float | None = None,
        mp_start_method: str | None = None,
        caller_share: bool = False,
        num_threads: int | None = None,
        num_sub_threads: int = 1,
        shutdown_timeout: float = SHUTDOWN_TIMEOUT,
        **kwargs: Any,
    ) -> None:
        super().__init__(num_workers, create_env_fn, **kwargs)
        settings = _settings(
            self.num_workers,
            num_processes=num_processes,
            step_timeout=step_timeout,
            mp_start_method=mp_start_method,
            caller_share=caller_share,
            num_threads=num_threads,
            num_sub_threads=num_sub_threads,
            shutdown_timeout=shutdown_timeout,
        )
        vars(self).update(settings)

    def configure_parallel(self, **kwargs: Any) -> ParallelEnv:
        """Change how the workers run, before they start.

        Args:
            **kwargs: ``num_processes``, ``step_timeout``, ``mp_start_method``, ``caller_share``, ``num_threads``,
                ``num_sub_threads``, ``shutdown_timeout``, as in the constructor; arguments without an effect
                give a warning.

        Returns:
            The batch itself.

        Raises:
            StateError: the workers have started.
            ArgumentError: a value is wrong; the batch stays as it was.
            TypeError: an argument does not exist.
        """
        self._check_not_started("configure_parallel")
        others = {name: value for name, value in kwargs.items() if name not in _OF_WORKERS}
        ignored_values = take_ignored(type(self), others, self._ignored, _OF_WORKERS)
        now = {name: getattr(self, name) for name in _OF_WORKERS}
        new = {name: kwargs[name] for name in _OF_WORKERS if name in kwargs}
        vars(self).update(_settings(self.num_workers, **{**now, **new}))
        self._given.update(ignored_values)
        return self

    def _make_backend(self, factories: list[Callable[[], Any]]) -> Processes:
        if self.num_threads is not None:
            torch.set_num_threads(self.num_threads)
        return Processes(
            factories,
            n_processes=self.num_processes,
            caller_share=self.caller_share,
            method=self.mp_start_method,
            num_threads=self.num_sub_threads,
            step_timeout=self.step_timeout,
            shutdown_timeout=self._shutdown_timeout,
        )

    @property
    def _shutdown_timeout(self) -> float:
        return float(self.shutdown_timeout)

    @property
    def worker_pids(self) -> list[int]:
        """Process ids of the workers; empty before the start and after ``close``."""
        backend: Processes | None = self._backend
        return [] if backend is None else backend.pids


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
    """Validate the settings of the workers of ``n`` environments, and return them with ``num_processes`` filled in.

    Raises:
        ArgumentError: a value is wrong, or contradicts another value.
        NotSupported: this system has no worker processes.
    """
    mp_start_method = check_method(mp_start_method)
    share = bool(caller_share)
    least = 2 if share else 1
    wanted = max(least, usable_cores()) if num_processes is None else num_processes
    if isinstance(wanted, bool) or not isinstance(wanted, int) or wanted < least:
        raise ArgumentError(
            f"num_processes is a whole number >= {least}{' with caller_share' * share}, found {wanted!r}."
        )
    timeout = others.get("step_timeout")
    if timeout is not None and not timeout > 0:
        raise ArgumentError(f"step_timeout is a number of seconds above 0, or None, found {timeout!r}.")
    if share and n < 2:
        raise ArgumentError("caller_share divides environments between this process and others: it needs 2 or more.")
    threads = 1 if num_sub_threads is None else num_sub_threads
    if isinstance(threads, bool) or not isinstance(threads, int) or threads < 1:
        raise ArgumentError(f"num_sub_threads is a whole number >= 1, found {threads!r}.")
    if threads > 1 and mp_start_method == "fork":
        raise ArgumentError(
            f"num_sub_threads={threads} is not supported with mp_start_method='fork': a forked worker would wait for "
            "threads that exist only in this process. Leave mp_start_method out."
        )
    timeout = SHUTDOWN_TIMEOUT if shutdown_timeout is None else float(shutdown_timeout)
    if timeout < 0:
        raise ArgumentError(f"shutdown_timeout is a number of seconds >= 0, found {shutdown_timeout!r}.")
    return {
        "num_sub_threads": threads,
        "shutdown_timeout": timeout,
        "num_processes": min(n, wanted),
        "mp_start_method": mp_start_method,
        "caller_share": share,
        **others,
    }
