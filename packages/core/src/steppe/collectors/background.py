"""Background: collect in a thread, while the caller learns from the replay buffer."""

from __future__ import annotations

import threading
from collections.abc import Iterator

__all__ = ["Background"]


class Background:
    """Exhausts an iterator in a thread.

    Args:
        iterator: its items are dropped; a collector with a replay buffer has stored its data by then.
    """

    def __init__(self, iterator: Iterator[object]) -> None:
        self._iterator = iterator
        self._stop = threading.Event()
        self._error: BaseException | None = None
        # A daemon thread does not keep a program alive that forgets to stop it.
        self._thread = threading.Thread(target=self._run, name="steppe-collector", daemon=True)
        self._thread.start()

    @property
    def is_running(self) -> bool:
        """Whether the thread is still running."""
        return self._thread.is_alive()

    def stop(self, timeout: float | None = None) -> None:
        """End the thread after the item that it is working on.

        Args:
            timeout: maximum time to wait for that item, in seconds.

        Raises:
            BaseException: the error that ended the thread.
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
        # stop() raises the error in the caller's thread.
        except BaseException as error:
            self._error = error
