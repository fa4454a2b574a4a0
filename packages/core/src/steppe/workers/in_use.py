"""InUse: lets one thread at a time use a batch or a collector; another thread gets a StateError."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from threading import get_ident
from typing import Any, TypeVar, cast

from steppe.errors import StateError
from steppe.workers.pool import SHUTDOWN_TIMEOUT

__all__ = ["InUse", "exclusive"]

# Keys of InUse.by: the thread in an exclusive call, the name of that call, and the thread that is next.
_THREAD, _CALL, _NEXT = "thread", "call", "next"

#: Seconds between two checks whether another thread has ended its call.
_POLL_INTERVAL = 0.0005


class InUse:
    """The thread that uses an object, for methods that are :func:`exclusive`.

    A dict takes the place of a lock: ``setdefault`` is atomic, and the dict says which thread is inside, so Ctrl-C
    right after it leaves nothing locked.

    Args:
        name: the class of the object, for errors: ``"ParallelEnv"``.

    Attributes:
        by: the thread in an exclusive call, the name of its last call, and the thread that is next.
    """

    __slots__ = ("by", "name")

    def __init__(self, name: str) -> None:
        self.name = name
        self.by: dict[str, Any] = {}

    def __reduce__(self) -> tuple[type[InUse], tuple[str]]:
        return InUse, (self.name,)  # no thread uses a copy

    @property
    def thread(self) -> int | None:
        """The identifier of the thread in an exclusive call, or None."""
        return self.by.get(_THREAD)

    @property
    def is_mine(self) -> bool:
        """Whether this thread is in an exclusive call."""
        return self.thread == get_ident()

    def check(self, call: str) -> None:
        """Raise StateError if another thread is in an exclusive call."""
        holder = self.thread
        if holder is not None and holder != get_ident() and _runs(holder):
            raise self._refusal(call)

    def refuse(self, call: str) -> None:
        """Raise StateError, or take over if the other thread has ended (or belongs to a parent process)."""
        by, me = self.by, get_ident()
        while (holder := by.setdefault(_THREAD, me)) != me:
            if _runs(holder):
                raise self._refusal(call)
            by[_THREAD] = me

    def _refusal(self, call: str) -> StateError:
        holder, doing = self.thread, self.by.get(_CALL)
        names = {thread.ident: thread.name for thread in threading.enumerate()}
        return StateError(
            f"{call} of this {self.name} was called in thread {threading.current_thread().name!r}, while its {doing} "
            f"runs in thread {names.get(holder, holder)!r}. One thread at a time can use it: make one {self.name} for "
            "each thread, or hold a lock of your own around each use."
        )

    @contextmanager
    def alone(self, call: str, timeout: float, *, force: Callable[[], object] | None = None) -> Iterator[bool]:
        """Wait for another thread to end its call, and keep other threads out: for ``close`` and the like.

        Args:
            call: the name of this call, for the errors of other threads.
            timeout: seconds to wait at most.
            force: called if the other thread is still in its call; this then waits 5 s more.

        Yields:
            Whether no other thread is in a call.
        """
        if self.is_mine:
            yield True
            return
        try:
            alone = self._take(call, timeout)
            if not alone and force is not None:
                force()
                alone = self._take(call, SHUTDOWN_TIMEOUT)
            yield alone
        finally:
            if self.is_mine:
                del self.by[_THREAD]

    def _take(self, call: str, timeout: float) -> bool:
        by, me, end = self.by, get_ident(), time.monotonic() + timeout
        by[_NEXT] = me
        try:
            while (holder := by.setdefault(_THREAD, me)) != me:
                if not _runs(holder):
                    by[_THREAD] = me
                elif time.monotonic() >= end:
                    return False
                else:
                    time.sleep(_POLL_INTERVAL)
            by[_CALL] = call
            return True
        finally:
            if by.get(_NEXT) == me:
                del by[_NEXT]


def _runs(thread: int) -> bool:
    """Whether this process has such a thread."""
    return thread in sys._current_frames()


_F = TypeVar("_F", bound=Callable[..., Any])


def exclusive(name: str) -> Callable[[_F], _F]:
    """Make a method exclusive: one thread at a time may be in the exclusive methods of an object.

    The object has an attribute ``in_use``, an :class:`InUse`. A thread in one exclusive method may call others; another
    thread gets a StateError.

    Args:
        name: name of the method, for errors: ``"step"``.
    """

    def decorate(method: _F) -> _F:
        @wraps(method)
        def call(self: Any, *args: Any, **kwargs: Any) -> Any:
            by, me = self.in_use.by, get_ident()
            if by.get(_THREAD) == me:
                return method(self, *args, **kwargs)
            try:
                if by.setdefault(_THREAD, me) != me:
                    self.in_use.refuse(name)
                by[_CALL] = name
                return method(self, *args, **kwargs)
            finally:
                # No function is called here: Python would handle Ctrl-C at the call, and leave the object in use.
                if _THREAD in by and by[_THREAD] == me:
                    if _NEXT in by:
                        by[_THREAD] = by[_NEXT]
                    else:
                        del by[_THREAD]

        return cast(_F, call)

    return decorate
