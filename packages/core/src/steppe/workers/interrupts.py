"""Ctrl-C at the right time: not between reading a message and keeping what it says."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import ContextDecorator, contextmanager
from types import FrameType
from typing import Any, ParamSpec, TypeVar

__all__ = ["held_back", "uninterrupted"]

_P = ParamSpec("_P")
_T = TypeVar("_T")

# What signal.signal and signal.getsignal wrap. The wrappers look every handler up in an enumeration, and raise and
# catch an error for each function that is none of its members: 7 us instead of 0.5 us for signal.signal on a busy
# machine. Asynchronous pools enter such a block at each send and receive.
_set_handler = getattr(signal.signal, "__wrapped__", signal.signal)
_get_handler = getattr(signal.getsignal, "__wrapped__", signal.getsignal)


class uninterrupted(ContextDecorator):
    """Put Ctrl-C off to the end of a block, which reads messages that are there and keeps what they say.

    An exception in between would lose a message: its caller would wait for an answer that has come already, or read
    the rest of it as another one. A second Ctrl-C comes at once, for a block that does not end. Waiting belongs before
    the block, or into :meth:`wait`. Blocks may be nested: the outermost one puts off, and an inner one, which reads a
    message, puts off a second Ctrl-C to its own end.

    Python runs signal handlers in its main thread alone: in other threads the block does nothing.
    """

    #: The block that the main thread is in.
    _outermost: uninterrupted | None = None

    _handler: Callable[[int, FrameType | None], Any] | None = None
    _installed = _came = _waits = _came_again = False
    #: How many blocks the main thread is in inside of this one; and for one of these the outermost one.
    _inner = 0
    _outer: uninterrupted | None = None

    def __enter__(self) -> uninterrupted:
        self._installed = False
        if threading.get_ident() != threading.main_thread().ident:
            return self
        outermost = uninterrupted._outermost
        if outermost is not None:
            outermost._inner += 1
            self._outer = outermost
            return outermost
        handler = _get_handler(signal.SIGINT)
        if not callable(handler):
            return self
        self._handler, self._came, self._waits, self._came_again, self._inner = handler, False, False, False, 0
        # From here on nothing comes in between, so the next two lines happen both.
        _set_handler(signal.SIGINT, self._put_off)
        self._installed = True
        uninterrupted._outermost = self
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        outer, self._outer = self._outer, None
        if outer is not None:
            outer._inner -= 1
            if outer._came_again and not outer._inner and kind is None:
                outer._came_again = False
                assert outer._handler is not None
                outer._handler(signal.SIGINT, None)
            return
        if not self._installed:
            return
        self._installed = False
        uninterrupted._outermost = None
        _set_handler(signal.SIGINT, self._handler)
        if self._came and kind is None:
            signal.raise_signal(signal.SIGINT)

    def _put_off(self, number: int, frame: FrameType | None) -> None:
        if self._waits or (self._came and not self._inner):
            assert self._handler is not None
            self._handler(number, frame)
        elif self._came:
            self._came_again = True
        else:
            self._came = True

    def wait(self, function: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> _T:
        """Call a function that waits: Ctrl-C ends the wait at once, also where it came before."""
        self._waits = True
        try:
            if self._came:
                self._came = False
                assert self._handler is not None
                self._handler(signal.SIGINT, None)
            return function(*args, **kwargs)
        finally:
            self._waits = False


@contextmanager
def held_back() -> Iterator[None]:
    """Keep Ctrl-C from a process that begins in this block, until it ignores the signal and unblocks it."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
