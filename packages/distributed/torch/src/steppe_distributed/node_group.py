"""Groups of workers on nodes: over a process group of torch.distributed, or over torch's RPC."""

from __future__ import annotations

import threading
import time
from abc import abstractmethod
from collections.abc import Collection, Iterable
from concurrent.futures import FIRST_COMPLETED, Future, wait
from typing import Any

import torch
import torch.distributed.rpc as rpc

from steppe.errors import StateError
from steppe_distributed.channel import Channel, device_of, new_groups
from steppe_distributed.launchers import Launcher
from steppe_distributed.node import (
    ANSWERS,
    AT_ONCE,
    CALLS,
    call_in_node,
    rpc_name,
    rpc_options,
    rpc_runs,
    rpc_starts,
    with_arrays,
    with_tensors,
)
from steppe_distributed.rendezvous import Meeting, NodeError, free_port, host_name, open_store
from steppe_remote import RemoteGroup, WorkerGone

__all__ = ["NodeGroup", "ProcessGroupNodes", "RpcNodes"]

#: Seconds between two looks whether nodes have come to the meeting, or ended on their way.
_LOOK = 0.05


class NodeGroup(RemoteGroup[Future[Any]]):
    """Workers on nodes that a launcher starts.

    Args:
        name: of the collector, for errors.
        n: the number of nodes.
        launcher: starts the nodes.
        transport: how messages are sent, see :class:`Meeting`.
        port: where nodes meet; None for a free port.
        start_timeout: seconds that nodes may take to come; None: no limit.
    """

    def __init__(
        self, name: str, n: int, launcher: Launcher, transport: str, port: int | None, start_timeout: float | None
    ) -> None:
        super().__init__(n)
        self._name, self._launcher, self._start_timeout = name, launcher, start_timeout
        host = host_name(local=launcher.is_local)
        self.store = launcher.store(name) or open_store(name, host, port)
        self.meeting = Meeting(self.store.host, self.store.port, n + 1, transport)

    def launch_all(self) -> None:
        self._launcher.launch(self.meeting)
        self._wait_for_nodes()
        self.connect_transport()

    def _wait_for_nodes(self) -> None:
        end = None if self._start_timeout is None else time.monotonic() + self._start_timeout
        while missing := [rank for rank in range(1, self.n + 1) if not self.store.check([f"ready{rank}"])]:
            problem = self._launcher.problem()
            if problem is None and end is not None and time.monotonic() > end:
                problem = f"they did not come within start_timeout={self._start_timeout:g} s"
            if problem is not None:
                raise NodeError(
                    f"{self._name}: nodes {missing} of {self.n}, which meet at {self.meeting.host}:"
                    f"{self.meeting.port}, have not started: {problem}"
                )
            time.sleep(_LOOK)

    @abstractmethod
    def connect_transport(self) -> None:
        """Connect to all nodes, which have come to the meeting."""

    def launch(self, worker: int) -> None:
        """Do nothing: the launcher has started all nodes."""

    def wait(self, handles: Collection[Future[Any]], timeout: float | None) -> Iterable[Future[Any]]:
        return wait(handles, timeout, FIRST_COMPLETED).done if handles else []

    def result(self, worker: int, handle: Future[Any]) -> Any:
        try:
            return handle.result()
        except RuntimeError as error:
            pid = self.store.get(f"ready{worker + 1}").decode()
            raise WorkerGone(f"node {worker + 1} (process {pid}) has closed its connection: {error}") from error

    def publish(self, values: dict[str, torch.Tensor]) -> Any:
        return values

    def end(self, worker: int, timeout: float) -> None:
        self._launcher.end(worker + 1, timeout)


class ProcessGroupNodes(NodeGroup):
    """Nodes that are called by messages of a process group; see :class:`NodeGroup`."""

    def connect_transport(self) -> None:
        backend = self.meeting.transport
        groups, device = new_groups(backend, self.store, 0, self.n + 1), device_of(backend, 0)
        self._channels = [Channel(groups, rank, (CALLS, ANSWERS), device) for rank in range(1, self.n + 1)]
        self._calls: list[dict[int, Future[Any]]] = [{} for _ in range(self.n)]
        self._closed: dict[int, RuntimeError] = {}
        self._number = 0
        self._lock = threading.Lock()
        self._threads = []
        for worker in range(self.n):
            name = f"steppe-node{worker + 1}"
            self._threads.append(threading.Thread(target=self._hear, args=(worker,), name=name, daemon=True))
            self._threads[-1].start()

    def stop(self, timeout: float = 5.0) -> None:
        super().stop(timeout)
        # A process that ends while a thread receives is aborted by C++; the nodes close their connections now.
        for thread in getattr(self, "_threads", []):
            thread.join(timeout)

    def _hear(self, worker: int) -> None:
        """Receive the answers of a worker, until its connection is closed."""
        calls = self._calls[worker]
        while True:
            try:
                number, answer = self._channels[worker].receive()
            except RuntimeError as error:
                with self._lock:
                    self._closed[worker] = error
                for call in list(calls.values()):
                    if not call.done():
                        call.set_exception(error)
                return
            calls.pop(number).set_result(answer)

    def submit(self, worker: int, method: str, *args: object) -> Future[Any]:
        call: Future[Any] = Future()
        with self._lock:
            self._number += 1
            number, closed = self._number, self._closed.get(worker)
            if closed is None and method not in AT_ONCE:
                self._calls[worker][number] = call
        if closed is not None:
            call.set_exception(closed)
            return call
        try:
            self._channels[worker].send((number, method, args))
        except RuntimeError as error:
            if not call.done():
                call.set_exception(error)
        if method in AT_ONCE and not call.done():
            call.set_result(None)
        return call


class RpcNodes(NodeGroup):
    """Nodes that are called by torch's RPC; see :class:`NodeGroup`.

    Raises:
        StateError: RPC runs in this process already: torch has one RPC agent in a process.
    """

    _connected = False

    def __init__(self, name: str, *args: Any) -> None:
        if rpc_runs():
            raise StateError(
                f"{name}: torch's RPC runs once at a time in a process, and it is running: shut the other "
                "RPCDataCollector, or your own RPC, down first. DistributedDataCollector has no such limit."
            )
        super().__init__(name, *args)

    def connect_transport(self) -> None:
        port = free_port()
        self._start = rpc_starts()
        self.store.set("rpc_start", str(self._start))
        self.store.set("rpc_port", str(port))
        options = rpc_options(self.meeting.host, port)
        rpc.init_rpc(rpc_name(0, self._start), rank=0, world_size=self.n + 1, rpc_backend_options=options)  # type: ignore[no-untyped-call]
        self._connected = True

    def submit(self, worker: int, method: str, *args: object) -> Future[Any]:
        call: Future[Any] = Future()
        arguments = tuple(with_tensors(arg) for arg in args)
        remote = rpc.rpc_async(rpc_name(worker + 1, self._start), call_in_node, args=(method, arguments), timeout=0)

        def done(answered: Any) -> None:
            try:
                call.set_result(with_arrays(answered.wait()))
            except Exception as error:
                call.set_exception(RuntimeError(str(error)))

        remote.then(done)
        return call

    def stop(self, timeout: float = 5.0) -> None:
        super().stop(timeout)
        if self._connected:
            self._connected = False
            rpc.shutdown(graceful=False)
