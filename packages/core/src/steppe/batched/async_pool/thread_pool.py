"""ThreadingAsyncEnvPool: a pool whose environments have a thread each."""

from __future__ import annotations

import warnings

from steppe.batched.async_pool.async_env_pool import AsyncEnvPool
from steppe.batched.backends.threads import Threads
from steppe.errors import SpecError

__all__ = ["ThreadingAsyncEnvPool"]


class ThreadingAsyncEnvPool(AsyncEnvPool):
    """An :class:`AsyncEnvPool` whose environments are made, stepped and closed in a thread each.

    For environments that wait (for a network, a simulator, a compiled library that lets go of Python's lock) more than
    they compute: threads of Python compute one at a time.

    A thread cannot be stopped from outside. One whose environment hangs is left behind by ``close``, with a warning,
    after 5 seconds; it ends when the environment comes back, and keeps the interpreter from ending before.
    """

    backend = "threading"

    def _check_start_method(self, method: str | None) -> None:
        if method is not None:
            raise SpecError('mp_start_method is for worker processes: leave it out, or use backend="multiprocessing".')

    def _make_backend(self) -> Threads:
        return Threads(self._work.change, self._factories, step_timeout=self.step_timeout)

    def close(self, *, raise_if_closed: bool = False) -> None:
        backend: Threads | None = self._backend
        super().close(raise_if_closed=raise_if_closed)
        if backend is None:
            return
        if backend.hung:
            # Also what an error left behind: by now it may have come back.
            backend.stop(self._patience)
        if backend.hung:
            warnings.warn(
                f"Environments {backend.hung} did not come back within {self._patience:g} s, and a thread cannot be "
                'stopped: theirs run on. Use backend="multiprocessing" for environments that may hang.',
                RuntimeWarning,
                stacklevel=2,
            )
