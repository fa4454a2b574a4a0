"""The methods by which a collector is asked for requests."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

from steppe.collectors.job import Job
from steppe.collectors.record import Trajectories
from steppe.collectors.requests import Requests
from steppe.workers import InUse, exclusive

__all__ = ["RequestForm"]


class RequestForm:
    """What a collector offers for requests, beside iteration."""

    in_use: InUse
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

    @exclusive("execute")
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

    @exclusive("reexecute")
    def reexecute(self) -> Job | None:
        """Run the last request again, with new random numbers.

        Raises:
            StateError: there was none.
        """
        return self.requests.reexecute()

    @exclusive("get")
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

    @exclusive("reset_lanes")
    def reset_lanes(self, *, agent_info: Any = None, env_info: Any = None) -> None:
        """Begin an episode in every lane, for slices: ``execute(n_steps=...)``.

        Args:
            agent_info, env_info: one row for each lane, or one for all.
        """
        self.requests.reset(agent_info, env_info)

    @exclusive("finish")
    def finish(self) -> Job | None:
        """Let the lanes that are live run to the end of their episodes: a slice without a length. ``get`` fetches it.

        Returns:
            The job; None where no lane is live.
        """
        return self.requests.finish()

    @exclusive("drop")
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
