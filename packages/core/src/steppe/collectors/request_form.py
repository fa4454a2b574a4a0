"""RequestForm: the members of a collector for requests of episodes and steps, which steppe-agents implements."""

from __future__ import annotations

from collections.abc import Mapping
from operator import attrgetter
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Protocol

from steppe.collectors.collector_backend import CollectorBackend
from steppe.registry import find_class
from steppe.workers import InUse

if TYPE_CHECKING:
    from typing_extensions import Self

    from steppe.collectors.serving import WorkerLink

__all__ = ["RequestEngine", "RequestForm"]


class RequestEngine(Protocol):
    """The engine of the requests of one collector: ``steppe_agents.Requests``, with all members of a RequestForm."""

    def look(self) -> None:
        """Receive what a running request reports, and raise its error: the weights are about to change."""

    def reset(self, kwargs: dict[str, Any]) -> None:
        """Begin new episodes in all rows, with the arguments of ``Collector.reset``."""

    def check_idle(self) -> None:
        """Raise a StateError while a request is running; wait for the end of one that is over or cancelled."""

    def forget(self) -> None:
        """End all lanes: the environments are about to be used for something else."""

    def anew(self) -> Self:
        """Return an engine in the state of a new one, after the collector was seeded."""

    def in_worker(self, link: WorkerLink) -> Any:
        """Return the object whose methods the requests of the caller's process call in this worker."""


class RequestForm:
    """The members of a collector for requests; iteration needs none of them.

    Raises:
        ClassNotFound: at the first use, if steppe-agents is not installed.
    """

    in_use: InUse
    backend: CollectorBackend
    _requests: RequestEngine | None = None

    @property
    def requests(self) -> RequestEngine:
        """The engine of requests, made at the first use."""
        if self._requests is None:
            self.backend.check_open()
            engine: RequestEngine = find_class("collector", "Requests")(self)
            self._requests = engine
        return self._requests

    #: The arguments of the last ``reset``.
    reset_kwargs: Mapping[str, Any] = MappingProxyType({})

    def _reset_with(self, kwargs: dict[str, Any]) -> None:
        # An agent's infos, undeclared ones, and those of rows of several workers are the concern of requests alone.
        declared = "env_info" not in kwargs or not self.backend.env_info_spec.is_empty()
        alone = "agent_info" in kwargs or (self.backend.num_workers and kwargs)
        if self._requests is None and declared and not alone:
            self.backend.reset(kwargs)
        else:
            self.requests.reset(dict(kwargs))
        self.reset_kwargs = kwargs

    def _restart_requests(self) -> None:
        if self._requests is not None:
            self._requests = self._requests.anew()

    # Methods and attributes of the engine. ``help(collector.execute)`` shows their arguments.
    execute = property(attrgetter("requests.execute"), doc="Start a request of episodes or of steps; returns its job.")
    reexecute = property(attrgetter("requests.reexecute"), doc="Start the last request again, with new random numbers.")
    get = property(attrgetter("requests.get"), doc="Fetch the result of the last request, ``steppe.Trajectories``.")
    finish = property(
        attrgetter("requests.finish"), doc="Start a slice that runs the episodes of live lanes to the end."
    )
    drop = property(attrgetter("requests.drop"), doc="End the lanes that are live, and the running job, without data.")
    job = property(attrgetter("requests.job"), doc="The job whose result was not fetched yet.")
    n_lanes = property(attrgetter("requests.n_lanes"), doc="How many rows run at a time.")
    n_live = property(attrgetter("requests.n_live"), doc="How many lanes a slice can continue.")
