"""RequestForm: the methods of a collector for requests of episodes and steps, which steppe-agents carries out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from steppe.collectors.collector_backend import CollectorBackend
from steppe.workers import InUse, exclusive

if TYPE_CHECKING:
    from typing_extensions import Self

    from steppe.collectors.serving import WorkerLink

__all__ = ["RequestEngine", "RequestForm"]


class RequestEngine(Protocol):
    """What runs the requests of one collector: ``steppe_agents.Requests``, which documents each method.

    Attributes:
        job: the request that runs, or whose result was not fetched yet.
        n_lanes: how many rows run at a time.
        n_live: how many lanes a slice can continue.
    """

    job: Any
    n_lanes: int
    n_live: int

    def execute(self, n_episodes: int | None, agent_info: Any, env_info: Any, n_steps: int | None) -> Any:
        """See :meth:`RequestForm.execute`."""

    def reexecute(self) -> Any:
        """See :meth:`RequestForm.reexecute`."""

    def get(self, blocking: bool, timeout: float | None, partial: bool) -> Any:
        """See :meth:`RequestForm.get`."""

    def reset(self, agent_info: Any, env_info: Any) -> None:
        """See :meth:`RequestForm.reset_lanes`."""

    def finish(self) -> Any:
        """See :meth:`RequestForm.finish`."""

    def drop(self) -> None:
        """See :meth:`RequestForm.drop`."""

    def look(self) -> None:
        """Receive what a running request reports, and raise its error."""

    def forget(self) -> None:
        """End all lanes: the environments are about to be used for something else."""

    def anew(self) -> Self:
        """Return an engine in the state of a new one, after the collector was seeded."""

    def in_worker(self, link: WorkerLink) -> Any:
        """Return the object whose methods the requests of the caller's process call in this worker."""


class RequestForm:
    """The methods of a collector for requests; iteration needs none of them.

    Raises:
        CollectorNotFound: at the first use, if steppe-agents is not installed.
    """

    in_use: InUse
    backend: CollectorBackend
    _requests: RequestEngine | None = None

    @property
    def requests(self) -> RequestEngine:
        """The engine of requests, made at the first use."""
        if self._requests is None:
            from steppe.registry import find_collector

            self.backend.check_open()
            self._requests = find_collector("Requests")(self)
        return self._requests

    def _restart_requests(self) -> None:
        if self._requests is not None:
            self._requests = self._requests.anew()

    @exclusive("execute")
    def execute(
        self,
        n_episodes: int | None = None,
        *,
        agent_info: Any = None,
        env_info: Any = None,
        n_steps: int | None = None,
    ) -> Any:
        """Start a request, and return at once.

        Worker processes work on it while the caller does something else. A collector in this process works on it in
        ``get`` and ``job.done()``. Row i of the result answers row i of the request: the agent got ``agent_info[i]``,
        and the environment ``env_info[i]`` at its reset. When the row of a lane has ended, the lane takes the next row.

        Args:
            n_episodes: how many whole episodes, if no info has a row for each.
            agent_info: a TensorDict ``[*R]``, or a dict of values ``[R, ...]``.
            env_info: likewise. ``[A, 1]`` agents and ``[1, E]`` environments are the table ``[A, E]``.
            n_steps: instead of episodes, a slice: the next steps of all lanes that are live (all of them after
                ``reset_lanes``). ``agent_info`` then has a row for each lane, and holds from now on.

        Returns:
            The ``steppe.Job``; None if no lane is live.

        Raises:
            StateError: a job is running, or lanes are in the middle of episodes.
            InfoError: an info lacks an entry, or has an unknown one.
            SpecError: numbers of rows, shapes or dtypes do not fit.
        """
        return self.requests.execute(n_episodes, agent_info, env_info, n_steps)

    @exclusive("reexecute")
    def reexecute(self) -> Any:
        """Start the last request again, with new random numbers.

        Raises:
            StateError: there was no request.
        """
        return self.requests.reexecute()

    @exclusive("get")
    def get(self, blocking: bool = True, timeout: float | None = None, partial: bool = False) -> Any:
        """Fetch the result of the last request, ``steppe.Trajectories``.

        Args:
            blocking: wait for it. False returns None if a row has not ended.
            timeout: seconds to wait at most; the job goes on after a ``TimeoutError``.
            partial: return the rows that have ended since the last call, each once, or None; never wait.

        Returns:
            Rows in request order; None if there was no job.
        """
        return self.requests.get(blocking, timeout, partial)

    @exclusive("reset_lanes")
    def reset_lanes(self, *, agent_info: Any = None, env_info: Any = None) -> None:
        """Begin an episode in every lane, for slices: ``execute(n_steps=...)``.

        Args:
            agent_info, env_info: one row for each lane, or one for all.
        """
        self.requests.reset(agent_info, env_info)

    @exclusive("finish")
    def finish(self) -> Any:
        """Start a slice that ends with the episodes of the lanes that are live. ``get`` fetches it.

        Returns:
            The ``steppe.Job``; None if no lane is live.
        """
        return self.requests.finish()

    @exclusive("drop")
    def drop(self) -> None:
        """End the lanes that are live, and the job that is running, without their data."""
        self.requests.drop()

    @property
    def job(self) -> Any:
        """The job whose result was not fetched yet."""
        return self.requests.job

    @property
    def n_lanes(self) -> int:
        """How many rows run at a time."""
        return self.requests.n_lanes

    @property
    def n_live(self) -> int:
        """How many lanes a slice can continue."""
        return self.requests.n_live
