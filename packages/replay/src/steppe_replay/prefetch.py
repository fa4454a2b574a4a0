"""Prefetch: samples that threads make before they are asked for."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

__all__ = ["Prefetch"]


class Prefetch:
    """Call a function in threads, some calls ahead of the caller.

    A pickle has the function and the number of calls, and begins without results.

    Args:
        make: returns one result.
        n: number of calls ahead, each in a thread of its own; 0: every call is made when it is asked for.
    """

    def __init__(self, make: Callable[[], Any], n: int) -> None:
        self.n = n
        self._make = make
        self._ahead: deque[Future[Any]] = deque()
        self._threads = ThreadPoolExecutor(n, "steppe-replay") if n else None

    def next(self) -> Any:
        """Return the oldest result, and start another call."""
        if self._threads is None:
            return self._make()
        while len(self._ahead) <= self.n:
            self._ahead.append(self._threads.submit(self._make))
        return self._ahead.popleft().result()

    def clear(self) -> None:
        """Drop the results that were made ahead."""
        self._ahead.clear()

    def shutdown(self) -> None:
        """End the threads; later calls are made when they are asked for."""
        if self._threads is not None:
            self._threads.shutdown(wait=True, cancel_futures=True)
            self._threads, self.n = None, 0
            self._ahead.clear()

    def __reduce__(self) -> tuple[type[Prefetch], tuple[Callable[[], Any], int]]:
        return type(self), (self._make, self.n)
