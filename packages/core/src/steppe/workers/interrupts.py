"""Delays Ctrl-C while a message is read, so that none is lost."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import ContextDecorator, contextmanager
from types import FrameType
from typing import ParamSpec, TypeVar

__all__ = ["held_back", "uninterrupted"]

_P = ParamSpec("_P")
_T = TypeVar("_T")

# The C functions behind signal.signal and signal.getsignal. Their wrappers look every handler up in an enumeration,
# and raise and catch an error for each function that is not in it: 7 us instead of 0.5 us for signal.signal on a busy
# machine. Asynchronous pools enter an `uninterrupted` block at each send and receive.
_set_handler = getattr(signal.signal, "__wrapped__", signal.signal)
_get_handler = getattr(signal.getsignal, "__wrapped__", signal.getsignal)


class uninterrupted(ContextDecorator):
    """Delay Ctrl-C to the end of a block that reads messages and stores their contents.

    A KeyboardInterrupt in between would lose a message: the caller would then wait for an answer that has come already,
    or read the rest of a message as the next one. A second Ctrl-C is raised at once, in case the block hangs. Wait
    before the block, or in :meth:`wait`. In nested blocks, the outermost delays Ctrl-C, and an inner one, which reads a
    message, delays a second Ctrl-C to its own end.

    Python runs signal handlers in the main thread only: in other threads the block does nothing.
    """

    #: The block that the main thread is in.
    _outermost: uninterrupted | None = None

    _handler: Callable[[int, FrameType | None], object] | None = None
    _installed = _came = _waits = _came_again = False
    #: The number of inner blocks that the main thread is in; and in an inner block, the outermost one.
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
        # From here on Ctrl-C is delayed, so nothing interrupts the next two lines.
        _set_handler(signal.SIGINT, self._delay)
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

    def _delay(self, number: int, frame: FrameType | None) -> None:
        if self._waits or (self._came and not self._inner):
            assert self._handler is not None
            self._handler(number, frame)
        elif self._came:
            self._came_again = True
        else:
            self._came = True

    def wait(self, function: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> _T:
        """Call a function that waits. Ctrl-C ends the wait at once, even if it came before the wait."""
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
    """Block Ctrl-C in a process that is started in this block, until the process ignores the signal and unblocks it."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
