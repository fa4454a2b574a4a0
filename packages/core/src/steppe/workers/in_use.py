"""InUse: one thread at a time uses a batch or a collector, and another one is told so."""

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
from steppe.workers.pool import PATIENCE

__all__ = ["InUse", "exclusive"]

# Keys of what is known of a use: the thread, what it calls, and the thread that is next.
_THREAD, _CALL, _NEXT = "thread", "call", "next"

#: Seconds between two looks whether another thread has come to its end.
_LOOK = 0.0005


class InUse:
    """Who uses an object that one thread at a time can use, for methods that are :func:`exclusive`.

    A dict instead of a lock: ``setdefault`` takes it in one step that no other thread comes between, and it says who
    has it, so that Ctrl-C right behind that step leaves nothing locked.

    Args:
        name: what the object is, for errors: ``"ParallelEnv"``.

    Attributes:
        by: the thread that uses it, what it has called last, and who is next.
    """

    __slots__ = ("by", "name")

    def __init__(self, name: str) -> None:
        self.name = name
        self.by: dict[str, Any] = {}

    def __reduce__(self) -> Any:
        return InUse, (self.name,)  # a copy is used by nobody

    @property
    def thread(self) -> int | None:
        """The identifier of the thread that is in an exclusive call; None for none."""
        return self.by.get(_THREAD)

    @property
    def is_mine(self) -> bool:
        """Whether this thread is in an exclusive call."""
        return self.thread == get_ident()

    def check(self, call: str) -> None:
        """Raise StateError where another thread is in an exclusive call."""
        holder = self.thread
        if holder is not None and holder != get_ident() and _runs(holder):
            raise self._refusal(call)

    def refuse(self, call: str) -> None:
        """Raise StateError, unless the other thread has come to the end of its call, or is one of a parent process."""
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
    def alone(self, call: str, patience: float, *, force: Callable[[], object] | None = None) -> Iterator[bool]:
        """Wait for another thread to end its call, and hold off further ones; for what ends the object.

        Args:
            call: what is called, for the errors of other threads.
            patience: seconds to wait at most.
            force: called where that was not enough; it has 5 s to show effect.

        Yields:
            Whether no other thread is in a call any more.
        """
        if self.is_mine:
            yield True
            return
        try:
            alone = self._take(call, patience)
            if not alone and force is not None:
                force()
                alone = self._take(call, PATIENCE)
            yield alone
        finally:
            if self.is_mine:
                del self.by[_THREAD]

    def _take(self, call: str, patience: float) -> bool:
        by, me, end = self.by, get_ident(), time.monotonic() + patience
        by[_NEXT] = me
        try:
            while (holder := by.setdefault(_THREAD, me)) != me:
                if not _runs(holder):
                    by[_THREAD] = me
                elif time.monotonic() >= end:
                    return False
                else:
                    time.sleep(_LOOK)
            by[_CALL] = call
            return True
        finally:
            if by.get(_NEXT) == me:
                del by[_NEXT]


def _runs(thread: int) -> bool:
    """Whether there is such a thread in this process."""
    return thread in sys._current_frames()


_F = TypeVar("_F", bound=Callable[..., Any])


def exclusive(name: str) -> Callable[[_F], _F]:
    """Let one thread at a time into the exclusive methods of an object, which has an ``in_use``.

    A thread that is in one may call others. Another thread gets a StateError.

    Args:
        name: what the method does, for errors: ``"step"``.
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
                # No function is called here, so that Ctrl-C does not come in between.
                if _THREAD in by and by[_THREAD] == me:
                    if _NEXT in by:
                        by[_THREAD] = by[_NEXT]
                    else:
                        del by[_THREAD]

        return cast(_F, call)

    return decorate
