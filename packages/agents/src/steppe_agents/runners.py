"""Runner and LocalRunner: run the rows of a request."""

from __future__ import annotations

import time
from abc import abstractmethod
from typing import Any, ClassVar

import torch
from tensordict import TensorDict

from steppe.collectors import OWN_ENV, Collector, LocalBackend
from steppe.errors import StateError
from steppe.specs import Composite
from steppe_agents.assembly import Assembly
from steppe_agents.lanes import Lanes
from steppe_agents.policy_snapshot import PolicySnapshot
from steppe_agents.segment import Segment
from steppe_agents.slot_writer import SlotWriter
from steppe_agents.slots import Columns, Slots, slot_length
from steppe_agents.trajectories import Trajectories

__all__ = ["LocalRunner", "Runner"]

#: Seconds for which each check of a job runs it, in this process.
_TURN = 0.005


class Runner:
    """Run segments of requests on lanes.

    Attributes:
        n_lanes: the number of lanes.
        n_live: the number of lanes that can continue in a slice.
        parts: rows that have ended and that the job has not taken.
        waits: workers run the rows, so Ctrl-C in this process does not lose them.
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
    def reset(
        self, agent_info: TensorDict | None, env_info: TensorDict | None, kwargs: dict[str, Any] | None = None
    ) -> None:
        """Let the next slice begin an episode in each lane.

        Args:
            agent_info, env_info: infos with a row for each lane, or None.
            kwargs: reset the environments for the next batch too, with these further arguments.
        """

    @abstractmethod
    def infer_env_info(self, values: dict[str, torch.Tensor]) -> Composite:
        """Let environments that can do so infer their ``env_info_spec`` from values of one row.

        Returns:
            The ``env_info_spec`` of the environment, or of the batch of each worker; empty if they cannot.
        """

    def before_update(self) -> None:
        """Prepare a running job for new weights of the policy, which the next job acts with."""

    @property
    def is_broken(self) -> bool:
        """Whether others have used the environments, so that live lanes cannot continue."""
        return False

    def begin_anew(self) -> None:
        """Begin an episode in each lane, with the infos of the last ``reset``."""

    @abstractmethod
    def advance(self, timeout: float | None) -> bool:
        """Run rows, or wait for workers that run them.

        Args:
            timeout: maximum time in seconds; None runs until the segment has ended.

        Returns:
            Whether the segment has ended.
        """

    @abstractmethod
    def cancel(self) -> None:
        """Drop the rows that have not ended."""

    @abstractmethod
    def drop(self) -> None:
        """End all lanes and drop their data."""

    @abstractmethod
    def forget(self) -> None:
        """End all lanes, because the environments are used for batches."""


def _never() -> bool:
    return False


class LocalRunner(Runner):
    """Run lanes in this process while the caller waits for the job or checks it.

    Args:
        collector: a collector in this process.
        backend: the backend of the collector.
    """

    def __init__(self, collector: Collector, backend: LocalBackend) -> None:
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
            writer_of=self._new_writer,
        )
        self.n_lanes, self.parts = self.lanes.n, []
        self._version = 0
        self._slots: Slots | None = None
        self._assembly: Assembly | None = None
        self._snapshot = PolicySnapshot(None)

    def anew(self) -> LocalRunner:
        return LocalRunner(self._collector, self._backend)

    @property
    def n_live(self) -> int:  # type: ignore[override]
        return len(self.lanes.live)

    def begin(self, segment: Segment) -> None:
        self._version = self._backend.policy_version
        self._snapshot = PolicySnapshot(self._backend.policy)
        lanes = self.lanes
        lanes.act = self._backend.act
        with self._backend.acting(), self._sole_use:
            if segment.rows is None:
                lanes.begin_slice(segment)
                self._infos = lanes.infos_of_lanes
            else:
                lanes.begin_episodes(segment)
                self._infos = lanes.infos_of_rows
        if self._slots is not None:
            self._slots.discard()
            self._assembly = Assembly(self._slots, *self._infos)
        if isinstance(lanes.store, SlotWriter):
            lanes.store.version = self._version

    def _new_writer(self, columns: Columns) -> SlotWriter:
        """Return slots for the data of a job, in memory of this process."""
        length = slot_length(columns, self.n_lanes)
        slots = self._slots = Slots(columns, 1, self.n_lanes, 1, length, kind="plain")
        self._assembly = Assembly(slots, *self._infos)

        def read() -> None:
            assert self._assembly is not None
            self._assembly.read()

        writer = SlotWriter(slots, 0, filled=read)
        writer.version = self._version
        return writer

    def reset(
        self, agent_info: TensorDict | None, env_info: TensorDict | None, kwargs: dict[str, Any] | None = None
    ) -> None:
        declared = self._backend.agent_declarations.names
        # An agent that needs an info and has no default acts in no batch, whose reset would call it.
        acts_in_batches = "agent_info_spec" not in declared or "agent_info_default" in declared
        if kwargs is not None and acts_in_batches:
            if env_info is not None:
                kwargs = {**kwargs, "env_info": env_info if self._backend.env.batch_dims else env_info[0]}
            self._backend.reset(kwargs)
        self.lanes.reset(agent_info, env_info)

    def infer_env_info(self, values: dict[str, torch.Tensor]) -> Composite:
        return self._backend.env.infer_env_info(values)

    def before_update(self) -> None:
        self._snapshot.before_update()

    @property
    def is_broken(self) -> bool:
        return bool(self.lanes.live) and self.lanes.has_begun and self._sole_use.is_broken

    def begin_anew(self) -> None:
        self.lanes.begin_anew()

    def advance(self, timeout: float | None) -> bool:
        end = None if timeout is None else time.monotonic() + max(timeout, _TURN)
        if self.lanes.is_running and self._sole_use.is_broken:
            self.lanes.drop()
            raise StateError(
                "Something else reset or stepped the environment while this job was running, so its rows cannot be "
                f"continued and the job is dropped. {OWN_ENV}"
            )
        try:
            with self._backend.acting(), self._sole_use, self._snapshot.acting():
                self.lanes.run(_never if end is None else lambda: time.monotonic() >= end)
        except BaseException:
            self._take()
            # Steps of the environments may be lost, so their episodes cannot continue.
            self.lanes.drop()
            raise
        self._take()
        return not self.lanes.is_running

    def _take(self) -> None:
        """Take the rows that have ended."""
        part: Trajectories | None
        if isinstance(self.lanes.store, SlotWriter):
            assert self._assembly is not None
            self._assembly.read()
            part = self._assembly.take()
        else:
            part = self.lanes.take(self._version)
        if part is not None:
            self.parts.append(part)

    def cancel(self) -> None:
        self.lanes.cancel()

    def drop(self) -> None:
        self.lanes.drop()

    def forget(self) -> None:
        self.lanes.drop()
