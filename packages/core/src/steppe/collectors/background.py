"""Collecting in a thread, while the caller learns from what lies in the replay buffer."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

__all__ = ["Background"]


class Background:
    """Goes through an iterator in a thread, until it ends or is told to stop.

    Args:
        iterator: what each item is good for has happened when it is there: the items themselves are dropped.
    """

    def __init__(self, iterator: Iterator[Any]) -> None:
        self._iterator = iterator
        self._stop = threading.Event()
        self._error: BaseException | None = None
        # A daemon: a program that forgets to stop it ends all the same.
        self._thread = threading.Thread(target=self._run, name="steppe-collector", daemon=True)
        self._thread.start()

    @property
    def is_running(self) -> bool:
        """Whether the thread still collects."""
        return self._thread.is_alive()

    def stop(self, timeout: float | None = None) -> None:
        """Wait for the running item to be done.

        Args:
            timeout: seconds to wait at most.

        Raises:
            BaseException: what ended the thread.
        """
        self._stop.set()
        self._thread.join(timeout)
        error, self._error = self._error, None
        if error is not None:
            raise error

    def _run(self) -> None:
        try:
            for _ in self._iterator:
                if self._stop.is_set():
                    return
        # Whatever it is belongs to the caller, who hears of it when it stops the thread.
        except BaseException as error:
            self._error = error
