"""ThreadGroup: the workers of a collector in threads of this process."""

from __future__ import annotations

import queue
import threading
import time
import warnings
from collections.abc import Collection, Iterable
from concurrent.futures import FIRST_COMPLETED, Future, wait
from typing import Any

import torch

from steppe_remote.group import RemoteGroup
from steppe_remote.remote_worker import RemoteWorker

__all__ = ["ThreadGroup"]


class ThreadGroup(RemoteGroup[Future[Any]]):
    """Workers in threads, for environments that mostly wait: only one thread at a time runs Python code.

    A thread cannot be ended from outside. If an environment hangs, the group leaves its thread behind, with a warning.

    >>> from steppe import Collector
    >>> from steppe.collectors import Lockstep
    >>> from steppe_remote import ThreadGroup
    >>> class ThreadCollector(Collector):
    ...     schedule = Lockstep
    ...     def new_group(self, n, settings):
    ...         return ThreadGroup(n)
    >>> with ThreadCollector(["gym:CartPole-v1"] * 2, frames_per_batch=40, total_frames=80) as collector:
    ...     [batch.shape for batch in collector]
    [torch.Size([2, 20]), torch.Size([2, 20])]

    Args:
        n: the number of workers.
    """

    shares_batches = False

    def __init__(self, n: int) -> None:
        super().__init__(n)
        self._workers: dict[int, RemoteWorker] = {}
        self._queues: dict[int, queue.SimpleQueue[tuple[Future[Any], str, tuple[Any, ...]] | None]] = {}
        self._threads: dict[int, threading.Thread] = {}

    def launch(self, worker: int) -> None:
        self._workers[worker] = RemoteWorker(worker, in_process=True)
        self._queues[worker] = queue.SimpleQueue()
        name = f"steppe-calls-{worker}"
        self._threads[worker] = threading.Thread(target=self._answer_calls, args=(worker,), name=name, daemon=True)
        self._threads[worker].start()

    def _answer_calls(self, worker: int) -> None:
        instance, calls = self._workers[worker], self._queues[worker]
        while (call := calls.get()) is not None:
            future, method, args = call
            future.set_result(getattr(instance, method)(*args))

    def submit(self, worker: int, method: str, *args: object) -> Future[Any]:
        future: Future[Any] = Future()
        if method == "interrupt":
            self._workers[worker].interrupt()
            future.set_result(None)
        else:
            self._queues[worker].put((future, method, args))
        return future

    def wait(self, handles: Collection[Future[Any]], timeout: float | None) -> Iterable[Future[Any]]:
        return wait(handles, timeout, FIRST_COMPLETED).done if handles else []

    def result(self, worker: int, handle: Future[Any]) -> Any:
        return handle.result()

    def publish(self, values: dict[str, torch.Tensor]) -> Any:
        return values

    def end(self, worker: int, timeout: float) -> None:
        thread = self._threads.pop(worker, None)
        if thread is None:
            return
        self._queues.pop(worker).put(None)
        end = time.monotonic() + timeout
        thread.join(timeout)
        self._workers.pop(worker).join(max(end - time.monotonic(), 0.0))
        if thread.is_alive():
            warnings.warn(
                f"The environment of worker {worker} did not return within {timeout:.1f} s, and its thread cannot be "
                "stopped, so it keeps running. Use processes for environments that may hang.",
                RuntimeWarning,
                stacklevel=2,
            )
