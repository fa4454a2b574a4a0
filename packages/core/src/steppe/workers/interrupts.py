"""Ctrl-C at the right time: not between reading a message and keeping what it says."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

__all__ = ["uninterrupted"]


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Put Ctrl-C off to the end of a block, which reads messages that are there and keeps what they say.

    An exception in between would lose a message: its caller would wait for an answer that has come already, or read
    the rest of it as another one. A second Ctrl-C comes at once, for a block that does not end. To wait belongs before
    the block.
    """
    # Python runs handlers in its main thread alone.
    handler = signal.getsignal(signal.SIGINT) if threading.current_thread() is threading.main_thread() else None
    if not callable(handler):
        yield
        return
    came = False

    def put_off(number: int, frame: FrameType | None) -> None:
        nonlocal came
        if came:
            handler(number, frame)
        came = True

    signal.signal(signal.SIGINT, put_off)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
    if came:
        signal.raise_signal(signal.SIGINT)
