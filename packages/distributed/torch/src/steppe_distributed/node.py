"""A node: a process that collects for a collector elsewhere."""

from __future__ import annotations

import os
import queue
import sys
import threading
from typing import Any

import torch
import torch.distributed.rpc as rpc

from steppe_distributed.channel import Channel, device_of, new_groups
from steppe_distributed.rendezvous import Meeting
from steppe_remote import Packed, RemoteWorker

__all__ = ["ANSWERS", "AT_ONCE", "CALLS", "call_in_node", "rpc_name", "rpc_options", "serve"]

#: Tags of messages to nodes and from them.
CALLS, ANSWERS = 1, 2

#: Methods that a node calls while another call runs, and does not answer.
AT_ONCE = ("interrupt", "renew")

#: Seconds that nodes have to connect by RPC. Their calls have no time limit.
_CONNECT = 600

#: The worker of this process, for calls by RPC, and the event that ends the process.
_worker: RemoteWorker | None = None
_ended = threading.Event()


def serve(meeting: Meeting, rank: int) -> None:
    """Meet the collector, and collect for it until it ends.

    Args:
        meeting: where.
        rank: of this node, from 1 on.
    """
    store = meeting.store()
    store.set(f"ready{rank}", str(os.getpid()))
    if meeting.transport == "rpc":
        _serve_rpc(meeting, rank)
        return
    calls, answers = new_groups(meeting.transport, store, rank, meeting.size)
    channel = Channel((answers, calls), 0, (ANSWERS, CALLS), device_of(meeting.transport, rank))
    worker, tasks = RemoteWorker(rank - 1), queue.SimpleQueue[Any]()

    def answer() -> None:
        while True:
            number, method, args = tasks.get()
            try:
                channel.send((number, getattr(worker, method)(*args)))
            except RuntimeError:  # the collector has ended
                os._exit(1)
            if method == "shutdown":
                # The other thread waits for a message that will not come: ended with it, C++ would call it an error.
                sys.stdout.flush()
                os._exit(0)

    threading.Thread(target=answer, name="steppe-answers", daemon=True).start()
    while True:
        try:
            number, method, args = channel.receive()
        except RuntimeError:
            os._exit(1)  # the connection is closed: the collector has ended without shutdown()
        if method in AT_ONCE:
            getattr(worker, method)(*args)
        else:
            tasks.put((number, method, args))


# -- RPC --------------------------------------------------------------------------------------------------------------


def rpc_name(rank: int, start: int) -> str:
    """Return the name of a rank: 0 is the collector.

    Args:
        rank: of the process.
        start: how often RPC was started before in the process of the collector. torch counts its calls by the names of
            all ranks, so names that are used again would wait for calls that the nodes have never heard of.
    """
    return f"steppe{start}-{rank}"


def rpc_options(host: str, port: int) -> rpc.TensorPipeRpcBackendOptions:
    """Return options for RPC. Calls have no time limit: a batch may take as long as it takes.

    Args:
        host: the machine of the collector.
        port: where RPC opens a store of its own there.
    """
    return rpc.TensorPipeRpcBackendOptions(
        num_worker_threads=8, rpc_timeout=_CONNECT, init_method=f"tcp://{host}:{port}"
    )


def rpc_starts() -> int:
    """Return how often RPC was started in this process."""
    return int(getattr(rpc, "_init_counter", 0))


def rpc_runs() -> bool:
    """Return whether RPC runs in this process."""
    try:
        rpc.get_worker_info()
    except RuntimeError:
        return False
    return True


def call_in_node(method: str, args: tuple[Any, ...]) -> Any:
    """Call a method of the worker of this process; memory is passed as tensors, which RPC sends as they are."""
    assert _worker is not None
    result = getattr(_worker, method)(*(with_arrays(arg) for arg in args))
    if method == "shutdown":
        threading.Timer(0.2, _ended.set).start()  # after the answer
    return with_tensors(result)


def with_tensors(value: Any) -> Any:
    """Replace the arrays of a packed value, or of a message with one, by tensors."""
    if isinstance(value, Packed):
        return Packed(value.pickle, [torch.from_numpy(buffer.copy()) for buffer in value.buffers])  # type: ignore[misc]
    if isinstance(value, tuple) and len(value) == 2 and isinstance(value[1], Packed):
        return value[0], with_tensors(value[1])
    return value


def with_arrays(value: Any) -> Any:
    """Undo :func:`with_tensors`."""
    if isinstance(value, Packed):
        return Packed(value.pickle, [buffer.numpy() for buffer in value.buffers])  # type: ignore[attr-defined]
    if isinstance(value, tuple) and len(value) == 2 and isinstance(value[1], Packed):
        return value[0], with_arrays(value[1])
    return value


def _serve_rpc(meeting: Meeting, rank: int) -> None:
    global _worker
    _worker = RemoteWorker(rank - 1)
    store = meeting.store()
    options = rpc_options(meeting.host, int(store.get("rpc_port")))  # waits until the collector has set it
    # torch numbers the starts of RPC in a process, and processes whose numbers differ never meet. A start without the
    # others is no way to count: torch's autograd keeps the rank of the first start.
    start = rpc._init_counter = int(store.get("rpc_start"))
    rpc.init_rpc(rpc_name(rank, start), rank=rank, world_size=meeting.size, rpc_backend_options=options)  # type: ignore[no-untyped-call]
    while not _ended.wait(1.0):
        try:
            store.check(["ready1"])  # fails when the process of the collector is gone
        except Exception:
            os._exit(1)
    os._exit(0)
