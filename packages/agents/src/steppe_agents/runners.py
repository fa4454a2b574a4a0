"""What runs the rows of a request, in this process or elsewhere."""

from __future__ import annotations

import time
from abc import abstractmethod
from typing import Any, ClassVar

from tensordict import TensorDict

from steppe.collectors import OWN_ENV, LocalBackend
from steppe.errors import StateError
from steppe_agents.lanes import Lanes
from steppe_agents.segment import Segment
from steppe_agents.trajectories import Trajectories

__all__ = ["LocalRunner", "Runner"]

#: Seconds that a look at a job in this process may work on it.
_TURN = 0.005


class Runner:
    """Runs segments of requests on lanes, wherever these are.

    Attributes:
        n_lanes: how many there are.
        n_live: how many can go on with a slice.
        parts: rows that have ended and were not taken.
        waits: others do the work, which goes on where waiting for it was interrupted.
    """

    waits: ClassVar[bool] = False
    n_lanes: int
    n_live: int
    parts: list[Trajectories]

    @abstractmethod
    def anew(self) -> Runner:
        """Return a runner in the state of a new one, after the collector was seeded."""

    @abstractmethod
    def begin(self, segment: Segment) -> None:
        """Begin a segment; ``rows`` are numbered from 0."""

    @abstractmethod
    def reset(self, agent_info: TensorDict | None, env_info: TensorDict | None) -> None:
        """Begin an episode in every lane; infos have a row for each."""

    @property
    def is_broken(self) -> bool:
        """Whether others have used the environments, so that the lanes that are live cannot go on."""
        return False

    def begin_anew(self) -> None:
        """Begin an episode in every lane, with the infos of the last ``reset``."""

    @abstractmethod
    def advance(self, timeout: float | None) -> bool:
        """Work, or wait, for some seconds, None until the segment is done; returns whether it is."""

    @abstractmethod
    def cancel(self) -> None:
        """Give up the rows that have not ended."""

    @abstractmethod
    def drop(self) -> None:
        """Forget the lanes that are live."""

    @abstractmethod
    def forget(self) -> None:
        """Hear that batches are collected: no lane is live after that."""


class LocalRunner(Runner):
    """Lanes in this process, which work while the caller waits for them.

    Args:
        collector: a collector in this process.
        backend: its backend.
    """

    def __init__(self, collector: Any, backend: LocalBackend) -> None:
        self._collector, self._backend, self._sole_use = collector, backend, backend.sole_use
        self.lanes = Lanes(
            backend.env,
            backend.act,
            backend.policy,
            max_steps=collector.max_steps,
            auto_reset=collector.auto_reset,
            store_agent_state=collector.store_agent_state,
            compact=collector.compact,
            name=type(collector).__name__,
            trusted=collector.trust_policy,
        )
        self.n_lanes, self.parts = self.lanes.n, []

    def anew(self) -> LocalRunner:
        return LocalRunner(self._collector, self._backend)

    @property
    def n_live(self) -> int:  # type: ignore[override]
        return len(self.lanes.live)

    def begin(self, segment: Segment) -> None:
        self._number = self._backend.policy_version
        with self._backend.acting(), self._sole_use:
            if segment.rows is None:
                self.lanes.begin_slice(segment)
            else:
                self.lanes.begin_episodes(segment)

    def reset(self, agent_info: TensorDict | None, env_info: TensorDict | None) -> None:
        with self._sole_use:
            self.lanes.reset(agent_info, env_info)

    @property
    def is_broken(self) -> bool:
        return bool(self.lanes.live) and self._sole_use.is_broken

    def begin_anew(self) -> None:
        with self._sole_use:
            self.lanes.begin_anew()

    def advance(self, timeout: float | None) -> bool:
        end = None if timeout is None else time.monotonic() + max(timeout, _TURN)
        if self.lanes.at_work and self._sole_use.is_broken:
            self.lanes.drop()
            raise StateError(
                "Something else reset or stepped the environment while this job was running, so its rows cannot be "
                f"continued and the job is dropped. {OWN_ENV}"
            )
        try:
            with self._backend.acting(), self._sole_use:
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

    def forget(self) -> None:
        self.lanes.drop()
