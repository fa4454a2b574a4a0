"""DataCollectorBase: the loop of a collector over its batches, whichever backend collects them."""

from __future__ import annotations

import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from tensordict import TensorDictBase

from steppe.collectors.delivery import COLLECTED, Delivery
from steppe.collectors.request_form import RequestForm
from steppe.errors import ClosedError, StateError, WorkerError
from steppe.specs import Composite
from steppe.workers import SHUTDOWN_TIMEOUT, exclusive

__all__ = ["BaseCollector", "DataCollectorBase"]


class DataCollectorBase(RequestForm):
    """Iterate over the batches of a backend, count and deliver them, and do so in a thread if asked to.

    A collector is its own iterator: a second loop continues where the first one stopped. Use it as a context manager,
    or call ``shutdown`` in the end.

    Attributes:
        backend: collects the batches.
        frames_per_batch: frames in each batch that is yielded, before ``split_trajs`` and ``postproc``.
        total_frames: frames to collect in all; negative for no end.
        closed: whether the collector is shut down.
        in_use: the thread that uses the collector: a call of another one raises StateError.
    """

    closed: bool = True  # until there is something to close
    frames_per_batch: int
    total_frames: int
    init_random_frames: int
    pre_collect_hook: Callable[[], Any] | None
    replay_buffer: Any
    _delivery: Delivery

    def _set_up_loop(self) -> None:
        self._thread: threading.Thread | None = None
        self._stop, self._go, self._turn = threading.Event(), threading.Event(), threading.Lock()
        self._error: BaseException | None = None
        self._frames = self._iterations = 0
        self._seconds = 0.0

    @property
    def policy_version(self) -> int:
        """How often the policy was updated."""
        return self.backend.policy_version

    def collect(self, *, random_frames: int) -> tuple[TensorDictBase | None, int]:
        """Collect one raw batch, which is not counted and not post-processed; see :meth:`CollectorBackend.collect`."""
        if self._requests is not None:
            self._requests.forget()
        return self.backend.collect(random_frames)

    @property
    def _random_frames(self) -> int:
        """How many of the frames from here on are of random actions; 0 or less: none."""
        done = self._frames if self.replay_buffer is None else getattr(self.replay_buffer, "write_count", self._frames)
        return int(self.init_random_frames - done)

    def drop_running_trajectories(self) -> None:
        """Drop the parts of unfinished trajectories that are kept for whole ones: their episodes do not continue."""
        self._delivery.drop_running()

    def next(self) -> TensorDictBase | None:
        """Collect one batch; None when ``total_frames`` have been collected, or when it went to a replay buffer.

        Raises:
            ClosedError: after ``shutdown``.
            WorkerError: a worker raised, or ended.
        """
        return next(self, None)

    def __next__(self) -> Any:
        handed_over: list[bool] = []
        try:
            return self._next(handed_over)
        except WorkerError as error:
            if self.closed:
                raise ClosedError(f"This {type(self).__name__} was shut down by another thread.") from error
            raise
        except BaseException:
            # Ctrl-C has come before the caller got the batch: the next one must not continue its episodes.
            if handed_over and self._delivery.batch is None:
                self.backend.batch_lost = True
            raise

    @exclusive("next")
    def _next(self, handed_over: list[bool]) -> Any:
        """Return the next batch for the caller; ``handed_over`` gets an element when only the caller has it then."""
        while True:
            self.backend.check_open()
            if not self.backend.iterates:
                raise TypeError(f"{type(self).__name__} needs frames_per_batch= to be iterated over.")
            held = self._delivery.waiting()
            if held is not None:
                return held
            if self._delivery.batch is None:
                if 0 <= self.total_frames <= self._frames:
                    raise StopIteration
                self._take_batch()
            try:
                there = self._delivery.deliver()
            except Exception:
                self._delivery.batch, self.backend.batch_lost = None, True
                raise
            if there:
                if self.replay_buffer is None:
                    handed_over.append(True)
                return self._delivery.hand_over()

    def writers(self, spec: Composite, n: int) -> list[Any] | None:
        """Return what ``n`` workers write their batches with; see :meth:`Delivery.writers`."""
        return self._delivery.writers(spec, n)

    def deliver(self, batch: TensorDictBase) -> None:
        """Process a raw batch, and write it to the replay buffer."""
        self._delivery.batch = batch, COLLECTED
        self._delivery.deliver()
        self._delivery.hand_over()

    def _take_batch(self) -> None:
        """Collect a batch, count it, and give it to the delivery."""
        if self.backend.batch_lost:
            self.backend.begin_anew()
            self.drop_running_trajectories()
            self.backend.batch_lost = False
        if self.pre_collect_hook is not None:
            self.pre_collect_hook()
        start = time.perf_counter()
        batch, frames = self.collect(random_frames=self._random_frames)
        seconds = self._seconds + time.perf_counter() - start
        # In one statement, so that Ctrl-C comes before all of it or after.
        (self._delivery.batch, self._frames, self._iterations, self._seconds, self.backend.batch_lost) = (
            *((batch, COLLECTED), self._frames + frames, self._iterations + 1, seconds),
            False,
        )

    def __iter__(self) -> Iterator[Any]:
        return self

    def iterator(self) -> Iterator[Any]:
        """Return the collector itself, as an iterator."""
        return self

    def __len__(self) -> int:
        if self.total_frames < 0:
            raise TypeError(f"This {type(self).__name__} has no length: total_frames is {self.total_frames}, no end.")
        return -(-self.total_frames // self.frames_per_batch)

    def __bool__(self) -> bool:
        # bool() would otherwise call __len__, which raises without an end and is 0 after it.
        return True

    def stats(self) -> dict[str, float]:
        """Counts since the beginning: ``frames``, ``iterations``, ``seconds`` of collecting, or of waiting for workers,
        and ``frames_per_second``.
        """
        return {
            "frames": self._frames,
            "iterations": self._iterations,
            "seconds": self._seconds,
            "frames_per_second": self._frames / self._seconds if self._seconds else 0.0,
        }

    # -- in a thread ----------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Collect into the replay buffer in a thread, while the caller goes on, until ``async_shutdown``.

        If collecting fails, the thread ends with a RuntimeWarning at once, and ``is_running`` is False. The next call
        of ``start``, ``pause``, ``update_policy_weights_`` or ``shutdown`` raises the error.

        Raises:
            StateError: there is no replay buffer.
        """
        self._raise_thread_error()
        if self.replay_buffer is None:
            raise StateError(f"{type(self).__name__}.start() needs a replay buffer: give replay_buffer=.")
        if not self.is_running():
            self._stop.clear()
            self._go.set()
            # A daemon thread does not keep a program alive that forgets to stop it.
            self._thread = threading.Thread(target=self._run, name="steppe-collector", daemon=True)
            self._thread.start()

    def _run(self) -> None:
        try:
            while not self._stop.is_set():
                self._go.wait()
                with self._turn:
                    next(self)
        except StopIteration:
            return
        except BaseException as error:
            self._error = error
            # Nobody may call this collector for long: a loop that waits for frames asks the buffer alone.
            message = (
                f"{type(self).__name__}.start() has ended with {type(error).__name__}, shutdown raises it: {error}"
            )
            warnings.warn(message, RuntimeWarning, stacklevel=2)

    def _raise_thread_error(self) -> None:
        error, self._error = self._error, None
        if error is not None:
            raise error

    @contextmanager
    def pause(self) -> Iterator[None]:
        """Return a context in which the thread that ``start`` began waits, and nothing is written to the buffer.

        Entering it takes as long as the batches that have begun.
        """
        self._raise_thread_error()
        self._go.clear()
        try:
            with self._turn:
                self._frames += self.backend.settle()
                yield
        finally:
            self._go.set()

    def is_running(self) -> bool:
        """Whether a thread that ``start`` began is collecting."""
        return self._thread is not None and self._thread.is_alive()

    # -- the end --------------------------------------------------------------------------------------------------

    def async_shutdown(self, timeout: float | None = None, close_env: bool = True) -> None:
        """End the thread that ``start`` began, and shut down; an alias of ``shutdown``, as TorchRL names it."""
        self.shutdown(timeout, close_env)

    def shutdown(self, timeout: float | None = None, close_env: bool = True, raise_on_error: bool = True) -> None:
        """End the thread that ``start`` began, after its batch, then the environment or the workers.

        Calling it again does nothing. If another thread waits for a batch of workers, it gets a ClosedError, after
        ``timeout`` at the latest.

        Args:
            timeout: seconds to wait for the thread, and for the workers to end by themselves.
            close_env: False leaves an environment of this process open, for its owner.
            raise_on_error: False ignores errors of the thread and of closing the environment.

        Raises:
            StateError: another thread uses the environment of this process and does not come back within ``timeout``,
                or 5 s.
        """
        if self.closed:
            return
        backend, wait = self.backend, SHUTDOWN_TIMEOUT if timeout is None else timeout
        try:
            try:
                self._end_thread(timeout)
            finally:
                self.closed = True
                with self.in_use.alone("shutdown", wait, force=backend.kill) as alone:
                    if not alone and backend.kill is None:
                        self.closed = False
                        self.in_use.check("shutdown")
                    self._frames += backend.settle(wait) if alone else 0
                    backend.shutdown(wait, close_env)
        except Exception:
            if raise_on_error:
                raise

    def _end_thread(self, timeout: float | None) -> None:
        if self._thread is not None:
            self._stop.set()
            self._go.set()
            self._thread.join(timeout)
            self._raise_thread_error()

    def close(self) -> None:
        """The same as ``shutdown``."""
        self.shutdown()

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *exc_info: Any) -> None:
        self.shutdown()


BaseCollector = DataCollectorBase  # TorchRL's name since 0.10
