"""Requests: rows of agents and environments to run, asked for now and fetched when they are done."""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Callable
from typing import Any

import torch
from tensordict import TensorDict

from steppe.collectors.agents import AgentFacts, as_infos, check_infos
from steppe.collectors.lanes import Chunk, Lanes
from steppe.collectors.record import Trajectories
from steppe.errors import InfoError, SpecError, StateError
from steppe.specs import Composite

__all__ = ["Job", "LocalRunner", "RequestForm", "Requests", "Runner", "spec_of_row"]

#: Steps of a slice that goes on until all episodes have ended.
_NO_END = 2**62

#: Seconds that a look at a job in this process may work on it.
_TURN = 0.005


class Runner:
    """Runs chunks of requests on lanes, wherever these are.

    Attributes:
        n_lanes: how many there are.
        n_live: how many can go on with a slice.
        parts: rows that have ended and were not taken.
    """

    n_lanes: int
    n_live: int
    parts: list[Trajectories]

    @abstractmethod
    def begin(self, chunk: Chunk) -> None:
        """Begin a chunk; ``rows`` are numbered from 0."""

    @abstractmethod
    def reset(self, agent_info: TensorDict | None, env_info: TensorDict | None) -> None:
        """Begin an episode in every lane; infos have a row for each."""

    @abstractmethod
    def advance(self, timeout: float | None) -> bool:
        """Work, or wait, for some seconds, None until the chunk is done; returns whether it is."""

    @abstractmethod
    def cancel(self) -> None:
        """Give up the rows that have not ended."""

    @abstractmethod
    def drop(self) -> None:
        """Forget the lanes that are live."""


class LocalRunner(Runner):
    """Lanes in this process, which work while they are looked at.

    Args:
        lanes: them.
        context: what is in force while the policy acts.
        version: of the policy.
    """

    def __init__(self, lanes: Lanes, context: Callable[[], Any], version: Callable[[], int]) -> None:
        self.lanes, self._context, self._version = lanes, context, version
        self.n_lanes, self.parts = lanes.n, []

    @property
    def n_live(self) -> int:  # type: ignore[override]
        return len(self.lanes.live)

    def begin(self, chunk: Chunk) -> None:
        self._number = self._version()
        with self._context():
            if chunk.rows is None:
                self.lanes.begin_slice(chunk)
            else:
                self.lanes.begin_episodes(chunk)

    def reset(self, agent_info: TensorDict | None, env_info: TensorDict | None) -> None:
        self.lanes.reset(agent_info, env_info)

    def advance(self, timeout: float | None) -> bool:
        end = None if timeout is None else time.monotonic() + max(timeout, _TURN)
        try:
            with self._context():
                while self.lanes.at_work and (end is None or time.monotonic() < end):
                    self.lanes.step()
        except BaseException:
            # Environments may have been stepped, and their data lost.
            self.lanes.drop()
            raise
        part = self.lanes.take(self._number)
        if part is not None:
            self.parts.append(part)
        return not self.lanes.at_work

    def cancel(self) -> None:
        self.lanes.cancel()

    def drop(self) -> None:
        self.lanes.drop()


class Job:
    """A request that is being run.

    Args:
        requests: what runs it.
        total: rows.
        shape: of the request.
    """

    def __init__(self, requests: Requests, total: int, shape: torch.Size) -> None:
        self._requests, self.total, self.shape = requests, total, shape
        self._fetched = 0
        self._parts: list[Trajectories] = []
        self._over = self._cancelled = False

    def _advance(self, timeout: float | None) -> bool:
        if not self._over:
            try:
                self._over = self._requests.runner.advance(timeout)
            except Exception:
                # What was running is lost; another request may be made, where there is still someone to run it.
                self._over = True
                self._requests.ended()
                raise
            taken, self._requests.runner.parts = self._requests.runner.parts, []
            self._parts += taken
            if self._over:
                self._requests.ended()
        return self._over

    def done(self) -> bool:
        """Whether all rows have ended; never waits."""
        return self._advance(0)

    def progress(self) -> tuple[int, int]:
        """How many rows have ended, and how many there are; never waits."""
        self._advance(0)
        return self._fetched + sum(len(part) for part in self._parts), self.total

    def result(self, timeout: float | None = None) -> Trajectories:
        """Wait for all rows, and return those that ``partial`` has not; in request order, and in its shape.

        Args:
            timeout: seconds to wait at most. The job goes on after a ``TimeoutError``.

        Raises:
            TimeoutError: it is not done.
            StateError: it was cancelled, or all rows were taken.
            WorkerError: a worker raised, or ended.
        """
        if self._cancelled:
            raise StateError("This job was cancelled: partial() returns the rows that had ended.")
        end = None if timeout is None else time.monotonic() + timeout
        while not self._advance(None if end is None else max(end - time.monotonic(), 0.0)):
            if end is not None and time.monotonic() >= end:
                raise TimeoutError(f"{self.progress()[0]} of {self.total} rows had ended after {timeout} s.")
        found = self.partial()
        if found is None:
            raise StateError("All rows of this job were taken by partial().")
        whole = len(found) == self.total and len(self.shape) != 1
        return found.reshape(self.shape) if whole else found

    def partial(self) -> Trajectories | None:
        """Rows that have ended since the last call, each once, ``row`` says which; None where there are none."""
        if not self._cancelled:
            self._advance(0)
        if not self._parts:
            return None
        parts, self._parts = self._parts, []
        found = Trajectories.cat(parts)
        found = found[found.row.argsort()]
        self._fetched += len(found)
        return found

    def cancel(self) -> None:
        """Stop at the next step; rows that have ended stay to be taken by ``partial``."""
        if self._over:
            return
        self._requests.runner.cancel()
        self._advance(None)
        self._over = self._cancelled = True


class Requests:
    """The requests of a collector: one job at a time.

    Args:
        runner: runs them.
        facts: what the policy declares.
        env_info_spec: what environments may be told; shapes of one row.
    """

    def __init__(self, runner: Runner, facts: AgentFacts, env_info_spec: Composite) -> None:
        self.runner, self.facts, self.env_info_spec = runner, facts, env_info_spec
        self.job: Job | None = None
        self._running = False
        self._in_slices = False
        self._last: Callable[[], Job | None] | None = None

    def ended(self) -> None:
        """Hear from the job that it is over."""
        self._running = False

    def _check_idle(self) -> None:
        if self._running:
            raise StateError("A job is running: get() its result, or job.cancel() it.")

    def execute(self, n_episodes: int | None, agent_info: Any, env_info: Any, n_steps: int | None) -> Job | None:
        """See :meth:`RequestForm.execute`."""
        self._check_idle()
        if n_steps is not None:
            return self._slice(n_episodes, agent_info, env_info, n_steps)
        if self._in_slices and self.runner.n_live:
            raise StateError(
                f"{self.runner.n_live} lanes are in the middle of episodes: finish() runs them to their end, "
                "drop() forgets them, before episodes are asked for."
            )
        agents = self.facts.infos(agent_info, "The request")
        envs = self._env_infos(env_info)
        shape = _shape(n_episodes, agents if agent_info is not None else None, envs)
        rows = shape.numel()
        if rows < 1:
            raise SpecError(f"A request has at least one row, found n_episodes={rows}.")
        chunk = Chunk(list(range(rows)), None, _rows_of(agents, shape), _rows_of(envs, shape))
        self._in_slices = False
        self._last = lambda: self._start(chunk, rows, shape)
        return self._last()

    def _slice(self, n_episodes: Any, agent_info: Any, env_info: Any, n_steps: int) -> Job | None:
        if n_episodes is not None:
            raise SpecError("A request is of n_episodes= or of n_steps=, not of both.")
        if env_info is not None:
            raise SpecError("env_info is for the beginning of episodes: give it to reset(env_info=...).")
        if isinstance(n_steps, bool) or not isinstance(n_steps, int) or n_steps < 1:
            raise SpecError(f"n_steps is a whole number >= 1, found {n_steps!r}.")
        if not self._in_slices:
            self.reset(agent_info, None)
            agent_info = None
        infos = None if agent_info is None else self._of_lanes(self.facts.infos(agent_info, "The slice"), "agent_info")
        if not self.runner.n_live:
            self.job = None
            return None
        chunk, rows = Chunk(None, n_steps, infos, None), self.runner.n_live
        self._last = lambda: self._slice(None, agent_info, None, n_steps)
        return self._start(chunk, rows, torch.Size([rows]))

    def _start(self, chunk: Chunk, rows: int, shape: torch.Size) -> Job:
        self._check_idle()
        self.runner.parts = []
        self.runner.begin(chunk)
        self._running = True
        self.job = Job(self, rows, shape)
        return self.job

    def reset(self, agent_info: Any, env_info: Any) -> None:
        """See :meth:`RequestForm.reset_lanes`."""
        self._check_idle()
        agents = self._of_lanes(self.facts.infos(agent_info, "The reset"), "agent_info")
        envs = self._of_lanes(self._env_infos(env_info), "env_info")
        self.runner.reset(agents, envs)
        self._in_slices = True

    def finish(self) -> Job | None:
        """See :meth:`RequestForm.finish`."""
        self._check_idle()
        rows = self.runner.n_live
        if not self._in_slices or not rows:
            self.job = None
            return None
        self._last = None
        return self._start(Chunk(None, _NO_END, None, None, finishes=True), rows, torch.Size([rows]))

    def drop(self) -> None:
        """Forget the lanes that are live, and the job."""
        if self._running and self.job is not None:
            self.job.cancel()
        self._running, self._in_slices = False, False
        self.runner.drop()

    def reexecute(self) -> Job | None:
        """Run the last request again."""
        if self._last is None:
            raise StateError("There is no request to run again: execute() comes before reexecute().")
        return self._last()

    def get(self, blocking: bool, timeout: float | None, partial: bool) -> Trajectories | None:
        """See :meth:`RequestForm.get`."""
        job = self.job
        if job is None:
            return None
        if partial:
            return job.partial()
        if not blocking and not job.done():
            return None
        self.job = None
        try:
            return job.result(timeout)
        except TimeoutError:
            self.job = job
            raise
        except BaseException:
            self._running = False
            raise

    def _env_infos(self, given: Any) -> TensorDict | None:
        if given is None:
            return None
        infos = as_infos(given)
        if self.env_info_spec.is_empty():
            raise InfoError(f"The environment takes no env_info, found {sorted(map(str, infos.keys(True, True)))}.")
        check_infos("env_info", infos, self.env_info_spec, "the env_info_spec of the environment")
        return infos

    def _of_lanes(self, infos: TensorDict | None, name: str) -> TensorDict | None:
        if infos is None:
            return None
        n = self.runner.n_lanes
        if infos.batch_size.numel() not in (1, n):
            raise SpecError(f"{name} has {infos.batch_size.numel()} rows, and there are {n} lanes.")
        return infos.reshape(-1).expand(n).clone()


def spec_of_row(spec: Composite) -> Composite:
    """What one row of a batch may be told; the spec of one environment as it is."""
    return spec[0] if len(spec.shape) else spec


def _shape(n_episodes: int | None, agents: TensorDict | None, envs: TensorDict | None) -> torch.Size:
    shapes = {name: one.batch_size for name, one in (("agent_info", agents), ("env_info", envs)) if one is not None}
    if n_episodes is not None and (isinstance(n_episodes, bool) or not isinstance(n_episodes, int)):
        raise SpecError(f"n_episodes is a whole number >= 1, found {n_episodes!r}.")
    if not shapes:
        if n_episodes is None:
            raise SpecError("Say how many episodes: n_episodes=, or agent_info= or env_info= with so many rows.")
        return torch.Size([max(n_episodes, 0)])
    try:
        shape = torch.broadcast_shapes(*shapes.values())
    except RuntimeError:
        raise SpecError(
            f"agent_info has {_counted(shapes['agent_info'])}, env_info has {_counted(shapes['env_info'])}."
        ) from None
    if n_episodes is not None and shape.numel() != n_episodes:
        if shape.numel() == 1:
            return torch.Size([n_episodes])
        name = max(shapes, key=lambda each: shapes[each].numel())
        raise SpecError(f"{name} has {shapes[name].numel()} rows, request has {n_episodes}.")
    return torch.Size(shape) if shape else torch.Size([1])


def _counted(shape: torch.Size) -> str:
    return f"{shape[0]} rows" if len(shape) == 1 else f"shape {tuple(shape)}"


def _rows_of(infos: TensorDict | None, shape: torch.Size) -> TensorDict | None:
    return None if infos is None else infos.expand(shape).clone().reshape(-1)


class RequestForm:
    """What a collector offers for requests, beside iteration."""

    _requests: Requests | None = None

    @abstractmethod
    def _new_requests(self) -> Requests:
        """Make what runs requests."""

    @property
    def requests(self) -> Requests:
        """What runs requests; made at the first use."""
        if self._requests is None:
            self._requests = self._new_requests()
        return self._requests

    def execute(
        self,
        n_episodes: int | None = None,
        *,
        agent_info: Any = None,
        env_info: Any = None,
        n_steps: int | None = None,
    ) -> Job | None:
        """Run a request, and return at once: worker processes work on it while the caller does something else; a
        collector in this process works while it is asked (``get``, ``job.done()``).

        Row i of what comes back answers row i of the request: the agent was told ``agent_info[i]``, the environment
        ``env_info[i]`` at its reset. A lane whose row has ended takes the next one.

        Args:
            n_episodes: how many whole episodes, where no info says so.
            agent_info: a TensorDict ``[*R]``, or a dict of values ``[R, ...]``.
            env_info: likewise. ``[A, 1]`` agents and ``[1, E]`` environments are the table ``[A, E]``.
            n_steps: instead of episodes, a slice: the next steps of all lanes that are live (all after
                ``reset_lanes``); ``agent_info`` then has a row for each lane, and holds from now on.

        Returns:
            The job; None where no lane is live.

        Raises:
            StateError: a job is running, or lanes are in the middle of episodes.
            InfoError: an info lacks an entry, or has an unknown one.
            SpecError: numbers of rows, shapes or dtypes do not fit.
        """
        return self.requests.execute(n_episodes, agent_info, env_info, n_steps)

    def reexecute(self) -> Job | None:
        """Run the last request again, with new random numbers.

        Raises:
            StateError: there was none.
        """
        return self.requests.reexecute()

    def get(self, blocking: bool = True, timeout: float | None = None, partial: bool = False) -> Trajectories | None:
        """Fetch the result of the last request.

        Args:
            blocking: wait for it; otherwise None is returned where some row has not ended.
            timeout: seconds to wait at most; the job goes on after a ``TimeoutError``.
            partial: return the rows that have ended since the last call, each once, or None; never waits.

        Returns:
            Rows in request order; None where there was no job.
        """
        return self.requests.get(blocking, timeout, partial)

    def reset_lanes(self, *, agent_info: Any = None, env_info: Any = None) -> None:
        """Begin an episode in every lane, for slices: ``execute(n_steps=...)``.

        Args:
            agent_info, env_info: one row for each lane, or one for all.
        """
        self.requests.reset(agent_info, env_info)

    def finish(self) -> Job | None:
        """Let the lanes that are live run to the end of their episodes: a slice without a length. ``get`` fetches it.

        Returns:
            The job; None where no lane is live.
        """
        return self.requests.finish()

    def drop(self) -> None:
        """Forget the lanes that are live, and the job that is running."""
        self.requests.drop()

    @property
    def job(self) -> Job | None:
        """The job whose result was not fetched."""
        return self.requests.job

    @property
    def n_lanes(self) -> int:
        """How many rows run at a time."""
        return self.requests.runner.n_lanes

    @property
    def n_live(self) -> int:
        """How many lanes can go on with a slice."""
        return self.requests.runner.n_live
