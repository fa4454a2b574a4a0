"""ThreadingAsyncEnvPool: a pool whose environments have a thread each."""

from __future__ import annotations

import warnings

from steppe.batched.async_pool.async_env_pool import AsyncEnvPool
from steppe.batched.backends.threads import Threads
from steppe.errors import SpecError

__all__ = ["ThreadingAsyncEnvPool"]


class ThreadingAsyncEnvPool(AsyncEnvPool):
    """An :class:`AsyncEnvPool` whose environments are made, stepped and closed in a thread each.

    Use it for environments that mostly wait for a network, a simulator or a compiled library that releases the GIL:
    only one thread at a time runs Python code.

    A thread cannot be stopped from outside. If an environment hangs, ``close`` leaves its thread running after 5
    seconds, with a warning. The thread ends when the environment returns, and the interpreter waits for it at exit.
    """

    backend = "threading"

    def _check_start_method(self, method: str | None) -> None:
        if method is not None:
            raise SpecError('mp_start_method is for worker processes: leave it out, or use backend="multiprocessing".')

    def _make_backend(self) -> Threads:
        return Threads(self._pending.change, self._factories, step_timeout=self.step_timeout)

    def close(self, *, raise_if_closed: bool = False) -> None:
        backend: Threads | None = self._backend
        super().close(raise_if_closed=raise_if_closed)
        if backend is None:
            return
        if backend.hung:
            # Threads that an error left running may have ended by now.
            backend.stop(self._shutdown_timeout)
        if backend.hung:
            warnings.warn(
                f"Environments {backend.hung} did not return within {self._shutdown_timeout:g} s, and a thread cannot "
                'be stopped: theirs keep running. Use backend="multiprocessing" for environments that may hang.',
                RuntimeWarning,
                stacklevel=2,
            )
