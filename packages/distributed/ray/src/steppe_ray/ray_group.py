"""RayGroup: the workers of a collector as actors of a Ray cluster."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping, Sequence

import ray
import torch
from ray import ObjectRef
from ray.actor import ActorHandle

from steppe.collectors import Field
from steppe_ray.cluster import ClusterError, needed_resources
from steppe_remote import Message, Packed, Published, RemoteGroup, RemoteWorker, WorkerGone, dumps, loads

__all__ = ["DEFAULT_CONFIG", "RayGroup"]

#: The options of an actor unless ``remote_configs=`` says otherwise.
DEFAULT_CONFIG: dict[str, object] = {"num_cpus": 1}

#: Seconds that a cluster has to find room for actors, if others occupied it when they were asked for.
_PLACE = 25.0


#: Methods that a running call does not hold up.
_OVERTAKING = ("interrupt", "renew", "where")


class RayWorker:
    """A :class:`RemoteWorker` as an actor. Batches and weights are in Ray's object store."""

    def __init__(self, index: int) -> None:
        self._worker = RemoteWorker(index)

    def start(self, task: bytes, context: object, num_threads: int) -> Message:
        return self._worker.start(task, context, num_threads)

    def connect(self, n_workers: int, fields: list[Field], weights: Published) -> Message:
        return self._worker.connect(n_workers, fields, _read(weights))

    def share(self, memory: Packed, line: bytes) -> Message:
        return self._worker.share(memory, line)

    def serve(self) -> Message:
        return self._worker.serve()

    def renew(self, weights: Published) -> None:
        try:
            self._worker.renew(_read(weights))
        except Exception as error:
            self._worker.renew(error)

    def call(self, message: Packed, weights: Published | None) -> Message:
        return self._worker.call(message, None if weights is None else _read(weights))

    def more(self) -> Message:
        return self._worker.more()

    def interrupt(self) -> None:
        self._worker.interrupt()

    def shutdown(self) -> Message:
        return self._worker.shutdown()

    def where(self) -> tuple[str, int]:
        """Return the id of the node, and the process id."""
        return ray.get_runtime_context().get_node_id(), os.getpid()


def _read(weights: Published) -> Published:
    """Return weights with their values, of which each node of the cluster fetches a version once."""
    if weights.values is None:
        return weights
    (reference,) = weights.values
    return weights._replace(values=loads(ray.get(reference)))


class RayGroup(RemoteGroup[ObjectRef]):
    """Actors of a Ray cluster, each of which runs a worker.

    Args:
        name: of the collector, for errors.
        configs: the options of each actor.
        restart, replace_timeout: see :class:`RemoteGroup`.
        start_timeout: seconds that the process of an actor may take to start; None: no limit.
    """

    def __init__(
        self,
        name: str,
        configs: Sequence[Mapping[str, object]],
        *,
        restart: bool,
        replace_timeout: float | None,
        start_timeout: float | None,
    ) -> None:
        super().__init__(len(configs), restart=restart, replace_timeout=replace_timeout)
        self._name, self._configs, self._start_timeout = name, configs, start_timeout
        self._actors: dict[int, ActorHandle] = {}
        #: Node and process of each actor.
        self.places: dict[int, tuple[str, int]] = {}

    def launch(self, worker: int) -> None:
        actor = ray.remote(concurrency_groups={"control": 1})(RayWorker)
        is_replacement = worker in self.places
        timeout = self._time_to_start([self._configs[worker]]) if is_replacement else None
        self._actors[worker] = actor.options(**self._configs[worker]).remote(worker)
        if is_replacement:
            self._place(worker, timeout)

    def begin(self, payloads: Sequence[object], *, num_threads: int = 1) -> None:
        timeout = self._time_to_start(self._configs)
        super().begin(payloads, num_threads=num_threads)
        for worker in range(self.n):
            try:
                self._place(worker, timeout)
            except WorkerGone as gone:
                raise self.worker_error(worker, gone) from gone

    def _time_to_start(self, configs: Sequence[Mapping[str, object]]) -> float | None:
        """Return the seconds that actors may take to start: where there is room, only their processes take time."""
        free, needed = ray.available_resources(), needed_resources(configs)
        has_room = all(free.get(resource, 0.0) >= amount for resource, amount in needed.items())
        return self._start_timeout if has_room else _PLACE

    def _place(self, worker: int, timeout: float | None) -> None:
        """Wait until the cluster has started an actor.

        Raises:
            ClusterError: it has not, in time.
            WorkerGone: the actor has ended.
        """
        handle = self.submit(worker, "where")
        ready, _ = ray.wait([handle], timeout=timeout)
        if not ready:
            raise ClusterError(
                f"{self._name}: the actor of worker {worker} ({self._configs[worker]}) was not started within "
                f"{timeout:g} s. Free are {ray.available_resources()}. Ask for less with remote_configs=, end other "
                "programs on the cluster, or add nodes."
            )
        try:
            self.places[worker] = ray.get(handle)
        except ray.exceptions.RayError as error:
            raise WorkerGone(_first_line(error)) from error

    def submit(self, worker: int, method: str, *args: object) -> ObjectRef:
        call = getattr(self._actors[worker], method)
        if method in _OVERTAKING:
            call = call.options(concurrency_group="control")
        reference: ObjectRef = call.remote(*args)
        return reference

    def wait(self, handles: Collection[ObjectRef], timeout: float | None) -> Iterable[ObjectRef]:
        if not handles:
            return []
        ready, _ = ray.wait(list(handles), timeout=timeout)
        return list(ready)

    def result(self, worker: int, handle: ObjectRef) -> Message:
        try:
            message: Message = ray.get(handle)
            return message
        except ray.exceptions.RayTaskError:
            raise
        except ray.exceptions.RayError as error:
            node, pid = self.places.get(worker, ("unknown", 0))
            raise WorkerGone(f"its actor (node {node}, process {pid}) died: {_first_line(error)}") from error

    def publish(self, values: dict[str, torch.Tensor]) -> list[ObjectRef]:
        # In a list, so that Ray passes the reference on instead of the object.
        return [ray.put(dumps(values))]

    def end(self, worker: int, timeout: float) -> None:
        if worker in self._actors and ray.is_initialized():
            ray.kill(self._actors.pop(worker))


def _first_line(error: Exception) -> str:
    return next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)
