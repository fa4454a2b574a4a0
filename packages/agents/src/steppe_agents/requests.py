"""Requests: the requests of a collector for episodes and steps."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable
from numbers import Real
from typing import Any

import torch

from steppe.collectors import OWN_ENV, Collector, LocalBackend, WorkerLink, WorkersBackend
from steppe.errors import SpecError, StateError
from steppe.specs import Composite
from steppe.workers import exclusive
from steppe_agents.agent_infos import Infos
from steppe_agents.job import Job
from steppe_agents.request_infos import RequestInfos
from steppe_agents.runners import LocalRunner, Runner
from steppe_agents.segment import Segment
from steppe_agents.trajectories import Trajectories
from steppe_agents.worker_lanes import WorkerLanes
from steppe_agents.worker_runner import WorkerRunner

__all__ = ["Requests"]

#: The length of a slice that runs until all episodes have ended.
_NO_END = 2**62

#: Seconds that a request waits for the last step of a job that was cancelled.
_END_WAIT = 5.0


class Requests:
    """The requests of a collector, which runs one job at a time.

    The collector has the same methods: ``collector.execute`` is ``collector.requests.execute``.

    >>> import torch
    >>> from steppe import CategoricalActor, Collector, SerialEnv
    >>> actor = CategoricalActor(torch.nn.Linear(1, 3))
    >>> with Collector(SerialEnv(2, "gym:CartPole-v1"), CategoricalActor(torch.nn.Linear(4, 2))) as collector:
    ...     requests = collector.requests
    ...     _ = requests.execute(n_episodes=5)
    ...     requests.n_lanes, len(requests.get())
    (2, 5)

    Args:
        collector: any collector of steppe.
        runner: runs the rows; None to make one for the collector.

    Attributes:
        in_use: makes other threads raise an error while one thread uses the collector.
        runner: the argument, or the runner that was made.
        job: the job that is running, or whose result was not fetched yet.
    """

    def __init__(self, collector: Collector, runner: Runner | None = None) -> None:
        self._collector = collector
        self.in_use = collector.in_use
        self.runner = _runner_of(collector) if runner is None else runner
        self._infos = RequestInfos(collector.backend.agent_declarations, collector.backend.env_info_spec, self.runner)
        self.job: Job | None = None
        self._running = False
        #: The job that was started last.
        self._started: Job | None = None
        self._in_slices = False
        self._last: Callable[[], Job | None] | None = None
        #: Whether workers have not finished the last step of a job that was cancelled.
        self._ending = False
        #: A job that workers run, but that Ctrl-C kept from being returned to the caller.
        self._abandoned: Job | None = None
        self._thread = 0

    def anew(self) -> Requests:
        """Return requests in the state of new ones, after the collector was seeded."""
        return Requests(self._collector, self.runner.anew())

    def in_worker(self, link: WorkerLink) -> WorkerLanes:
        """Return the object that serves the requests of the caller's process.

        This is called in a worker.
        """
        return WorkerLanes(link)

    @property
    def env_info_spec(self) -> Composite:
        """The info of one environment; empty before the first request if no environment declares it."""
        return self._infos.env_info_spec

    @property
    def n_lanes(self) -> int:
        """The number of rows that run at the same time."""
        return self.runner.n_lanes

    @property
    def n_live(self) -> int:
        """The number of lanes that can continue in a slice."""
        if self._running and self._started is not None:
            self._started.settle()
        return self.runner.n_live

    def ended(self) -> None:
        """Allow the next request; the job calls this when its rows have ended."""
        self._running = self._ending = False

    def failed(self) -> None:
        """Allow the next request and end all lanes.

        The job calls this when its running rows are lost.
        """
        self._running = self._in_slices = False
        self.runner.forget()

    def ends_later(self) -> None:
        """Let the next request wait until workers have finished the current step of a job that is cancelled."""
        self._running, self._ending = False, True

    def check_open(self) -> None:
        """Raise the error of a collector that was shut down, or whose workers have ended."""
        self._collector.backend.check_open()

    def check_idle(self) -> None:
        """Wait for the ends of jobs whose rows have all ended, or which were cancelled.

        Raises:
            StateError: a job is running.
        """
        self.check_open()
        if self._abandoned is not None:
            self._abandoned.cancel()
            self._abandoned = None
            self.failed()
        if self._ending:
            if not self.runner.advance(_END_WAIT):
                raise StateError(
                    f"The job that was cancelled is still in a step after {_END_WAIT:g} s. Try again later, or close "
                    "the collector. batch_timeout= limits the time that workers may take for a step."
                )
            self._ending, self.runner.parts = False, []
        if self._running and self._started is not None:
            self._started.settle()
        if self._running:
            raise StateError("A job is running: call get() for its result, or job.cancel().")

    @exclusive("execute")
    def execute(
        self,
        n_episodes: int | None = None,
        *,
        agent_info: Infos | None = None,
        env_info: Infos | None = None,
        n_steps: int | None = None,
    ) -> Job | None:
        """Start a request, and return at once.

        Worker processes work on it while the caller does something else. A collector in this process works on it in
        ``get`` and ``job.done()``. Row i of the result answers row i of the request: the agent got ``agent_info[i]``,
        and the environment ``env_info[i]`` at its reset. When the row of a lane has ended, the lane takes the next row.

        Args:
            n_episodes: number of whole episodes, if no info has a row for each of them.
            agent_info: a TensorDict ``[*R]``, or a dict of values ``[R, ...]``.
            env_info: likewise. ``[A, 1]`` agents and ``[1, E]`` environments are the table ``[A, E]``.
            n_steps: request a slice instead of episodes: the next steps of all live lanes (of all lanes after
                ``reset``). ``agent_info`` then has a row for each lane, and stays valid for later slices.

        Returns:
            The job; None if no lane is live.

        Raises:
            StateError: a job is running, or lanes are in the middle of episodes.
            InfoError: an info lacks an entry, or has an unknown one.
            SpecError: numbers of rows, shapes or dtypes do not fit.
        """
        self.check_idle()
        if n_steps is not None:
            return self._slice(n_episodes, agent_info, env_info, n_steps)
        self._check_no_slice()
        agents, envs, shape = self._infos.of_request(n_episodes, agent_info, env_info)
        rows = shape.numel()
        segment = Segment(list(range(rows)), None, agents, envs)
        self._last = lambda: self._episodes(segment, rows, shape)
        return self._last()

    def _episodes(self, segment: Segment, rows: int, shape: torch.Size) -> Job:
        self._check_no_slice()
        self._in_slices = False
        return self._start(segment, rows, shape)

    def _check_no_slice(self) -> None:
        if self._in_slices and self.runner.n_live:
            raise StateError(
                f"{self.runner.n_live} lanes are in the middle of episodes. Before a request for episodes, call "
                "finish() to run them to their end, or drop() to discard them."
            )

    def _slice(
        self, n_episodes: int | None, agent_info: Infos | None, env_info: Infos | None, n_steps: int
    ) -> Job | None:
        if n_episodes is not None:
            raise SpecError("Pass either n_episodes= or n_steps=, found both.")
        if env_info is not None:
            raise SpecError("Only resets accept env_info: pass it to reset(env_info=...).")
        if isinstance(n_steps, bool) or not isinstance(n_steps, int) or n_steps < 1:
            raise SpecError(f"n_steps must be a whole number >= 1, found {n_steps!r}.")
        if not self._in_slices:
            agents, envs = self._infos.of_reset(self._collector.reset_kwargs)
            if agent_info is not None:
                agents, agent_info = self._infos.of_slice(agent_info), None
            self.runner.reset(agents, envs)
            self._in_slices = True
        self._begin_anew_if_used()
        infos = None if agent_info is None else self._infos.of_slice(agent_info)
        if not self.runner.n_live:
            self.job = None
            return None
        segment, rows = Segment(None, n_steps, infos, None), self.runner.n_live
        self._last = lambda: self._slice(None, agent_info, None, n_steps)
        return self._start(segment, rows, torch.Size([rows]))

    def _begin_anew_if_used(self) -> None:
        """Begin new episodes if others have used the environments.

        This is checked at each slice, for all lanes.
        """
        if self._in_slices and self.runner.is_broken:
            self.runner.begin_anew()
            warnings.warn(
                "Something else reset or stepped the environment since the last slice, so its episodes cannot be "
                f"continued and new ones begin in all lanes. {OWN_ENV}",
                stacklevel=5,
            )

    def _start(self, segment: Segment, rows: int, shape: torch.Size) -> Job:
        self.check_idle()
        self.runner.parts = []
        job = Job(self, rows, shape)
        try:
            self.runner.begin(segment)
            self._running, self._thread, self.job = True, threading.get_ident(), job
            self._started = job
        except BaseException:
            if self.runner.waits:
                self._abandoned = job
            raise
        return job

    def look(self) -> None:
        """Receive reports of the running job, and raise its error: new weights are about to be set.

        This must be called in the thread that started the job.
        """
        if self._running and self.job is not None and self._thread == threading.get_ident():
            if self.runner.waits:
                self.job.done()
            self.runner.before_update()

    def forget(self) -> None:
        """End all lanes, because the environments are about to be used for batches.

        Raises:
            StateError: a job is running.
        """
        self.check_idle()
        self._in_slices = False
        self.runner.forget()

    def reset(self, kwargs: dict[str, Any]) -> None:
        """Begin an episode in every lane, for slices, and in every row of the next batch.

        Args:
            kwargs: the arguments of ``Collector.reset``: ``agent_info`` and ``env_info`` with one row for each lane, or
                one for all, and arguments of the environment's ``reset``.
        """
        self.check_idle()
        agents, envs = self._infos.of_reset(kwargs)
        rest = {name: value for name, value in kwargs.items() if name not in ("agent_info", "env_info")}
        self.runner.reset(agents, envs, rest)
        self._in_slices = True

    @exclusive("finish")
    def finish(self) -> Job | None:
        """Start a slice that ends with the episodes of the lanes that are live.

        ``get`` fetches it.

        Returns:
            The job; None if no lane is live.
        """
        self.check_idle()
        self._begin_anew_if_used()
        rows = self.runner.n_live
        if not self._in_slices or not rows:
            self.job = None
            return None
        self._last = None
        return self._start(Segment(None, _NO_END, None, None, finishes=True), rows, torch.Size([rows]))

    @exclusive("drop")
    def drop(self) -> None:
        """End the lanes that are live, and the job that is running, without their data."""
        self.check_open()
        if self._running and self.job is not None:
            self.job.cancel()
        self._running = self._in_slices = False
        self.check_idle()
        self.runner.drop()

    @exclusive("reexecute")
    def reexecute(self) -> Job | None:
        """Start the last request again, with new random numbers.

        Raises:
            StateError: nothing was requested before.
        """
        self.check_idle()
        if self._last is None:
            raise StateError("There is no request to repeat: call execute() before reexecute().")
        return self._last()

    @exclusive("get")
    def get(self, blocking: bool = True, timeout: float | None = None, partial: bool = False) -> Trajectories | None:
        """Fetch the result of the last request.

        Without ``timeout`` this waits as long as the environments take. An environment in a worker that hangs ends the
        wait with a ``WorkerTimeout`` if the collector has ``batch_timeout``; otherwise press Ctrl-C. The job of workers
        then goes on: call ``get`` again, or ``job.cancel()``.

        Args:
            blocking: wait for the result. False returns None if a row has not ended.
            timeout: seconds to wait at most. The job continues after a ``TimeoutError``.
            partial: without waiting, return the rows that have ended since the last call, or None. Each row is returned
                once.

        Returns:
            Rows in the order of the request; None if there is no job.
        """
        job = self.job
        if job is None:
            self.check_open()  # after the error of a worker, so that a loop which polls does not wait for ever
            return None
        if partial:
            return job.partial()
        if not blocking and not job.done():
            return None
        self.job = None
        try:
            return job.result(timeout)
        except BaseException:
            if self._running or job.waits_to_be_taken:  # after a TimeoutError or Ctrl-C, get() may be called again
                self.job = job
            raise


def _runner_of(collector: Collector) -> Runner:
    """Return the runner for a collector: lanes in this process, or in its workers."""
    backend = collector.backend
    if isinstance(backend, LocalBackend):
        return LocalRunner(collector, backend)
    assert isinstance(backend, WorkersBackend)
    lanes_each = backend.env_batch_size[0] if backend.env_batch_size else 1
    n_lanes = backend.num_workers * backend.env_batch_size.numel()
    slot_len, num_slots = _slots(type(collector).__name__, backend.slot_len, backend.num_slots, n_lanes)
    return WorkerRunner(backend, lanes_each, num_slots, slot_len)


def _slots(name: str, length: int | None, number: int | None, n_lanes: int) -> tuple[int | None, int]:
    """Return the number of steps of a slot, None if the size of a step decides, and the number of slots.

    Raises:
        SpecError: an argument is not a whole number, or there are fewer slots than environments, all of which need a
            slot at once.
    """
    sizes = {
        "slot_len": 1 if length is None else length,
        "num_slots": 2 * n_lanes if number is None else number,
    }
    for argument, value in sizes.items():
        if isinstance(value, bool) or not isinstance(value, Real) or value % 1 or value < 1:
            raise SpecError(f"{name}: {argument} must be a whole number >= 1, found {value!r}.")
    if sizes["num_slots"] < n_lanes:
        raise SpecError(f"{name}: num_slots={number} is less than the {n_lanes} environments that run at once.")
    return None if length is None else int(length), int(sizes["num_slots"])
