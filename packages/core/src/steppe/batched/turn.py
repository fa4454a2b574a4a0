"""Turn: the lock of a pool, and waiting for what happens under it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from steppe.workers import uninterrupted

__all__ = ["Turn"]

_P = ParamSpec("_P")
_T = TypeVar("_T")


class Turn:
    """A lock, and waiting for what happens under it: a condition variable that Ctrl-C leaves as it was.

    Ctrl-C inside ``threading.Condition.wait`` may come after the lock was let go of and before Python notes it: the
    lock is then not held where the caller believes that it is.

    Attributes:
        lock: held by whoever reads or writes what it guards. Reentrant, because making environments asks for specs,
            which makes environments; whoever waits holds it once.
    """

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self._bells: list[threading.Lock] = []

    def let_go(self, function: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> _T:
        """Call a function that waits, without the lock, which is held again afterwards. Ctrl-C ends the wait."""
        with uninterrupted() as block:
            self.lock.release()
            try:
                return block.wait(function, *args, **kwargs)
            finally:
                self.lock.acquire()

    def wait(self, timeout: float | None = None) -> None:
        """Sleep until ``notify_all`` is called, without the lock.

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

    def notify_all(self) -> None:
        """Wake all who wait, once the lock is let go of."""
        bells, self._bells = self._bells, []
        for bell in bells:
            bell.release()
