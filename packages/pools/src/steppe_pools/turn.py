"""Turn: the lock of a pool, with a condition variable that Ctrl-C cannot corrupt."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from steppe.workers import uninterrupted

__all__ = ["Turn"]

_P = ParamSpec("_P")
_T = TypeVar("_T")


class Turn:
    """A lock with a condition variable that Ctrl-C cannot corrupt.

    Ctrl-C inside ``threading.Condition.wait`` may arrive after the lock was released and before this is recorded. The
    caller then wrongly assumes that it holds the lock.

    Attributes:
        lock: guards the state of the pool. It is reentrant, because making environments reads specs, and reading
            specs makes environments. A thread that waits must hold it only once.
    """

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self._bells: list[threading.Lock] = []

    def let_go(self, function: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> _T:
        """Release the lock, call a function that waits, and acquire the lock again.

        Ctrl-C ends the wait.
        """
        with uninterrupted() as block:
            self.lock.release()
            try:
                return block.wait(function, *args, **kwargs)
            finally:
                self.lock.acquire()

    def wait(self, timeout: float | None = None) -> None:
        """Release the lock and sleep until ``notify_all`` is called.

        Args:
            timeout: seconds to wait at most.
        """
        bell = threading.Lock()
        bell.acquire()
        self._bells.append(bell)
        try:
            self.let_go(bell.acquire, timeout=-1 if timeout is None else max(timeout, 0.0))
        finally:
            if bell in self._bells:
                self._bells.remove(bell)

    def notify_all(self, _: object = None) -> None:
        """Wake all waiting threads, once the lock is released.

        Futures call this as a callback; it ignores their argument.
        """
        with self.lock:
            bells, self._bells = self._bells, []
            for bell in bells:
                bell.release()
