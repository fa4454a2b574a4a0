"""Channel: messages between two ranks of a process group, with the memory of their tensors sent as it is."""

from __future__ import annotations

import os
import pickle
from datetime import timedelta
from typing import Any, Protocol

import numpy as np
import torch
import torch.distributed as dist
from torch.distributed import PrefixStore  # type: ignore[attr-defined]

from steppe.errors import BackendError
from steppe_remote import Packed, dumps, loads

__all__ = ["Channel", "PointToPoint", "check_backend", "check_gpus", "device_of", "new_groups"]

#: An idle collector may wait this long: its end is noticed by the connection, not by a time limit.
_FOREVER = timedelta(days=365)

#: Buffers that are smaller together are sent in one piece, which takes a copy and saves round trips.
_JOINED = 1 << 20


class PointToPoint(Protocol):
    """A process group of torch."""

    def send(self, tensors: list[torch.Tensor], rank: int, tag: int) -> Any:
        """Begin to send a tensor."""

    def recv(self, tensors: list[torch.Tensor], rank: int, tag: int) -> Any:
        """Begin to receive a tensor."""


def check_backend(backend: str) -> None:
    """Refuse a backend that cannot work here, before any process is started.

    Raises:
        BackendError: the backend is unknown, or torch or the machine lacks what it needs.
    """
    available = {"gloo": dist.is_gloo_available, "nccl": dist.is_nccl_available, "mpi": dist.is_mpi_available}
    if backend not in available:
        raise BackendError(f"backend is 'gloo', 'nccl' or 'mpi', found {backend!r}.")
    if not available[backend]():
        raise BackendError(f"This torch was built without {backend}: take backend='gloo', or another build of torch.")
    if backend == "nccl" and not torch.cuda.is_available():
        raise BackendError(
            "backend='nccl' sends messages through GPUs, and this machine shows torch none: take backend='gloo', or "
            "see why torch.cuda.is_available() is False."
        )
    if backend == "mpi" and "OMPI_COMM_WORLD_SIZE" not in os.environ and "PMI_SIZE" not in os.environ:
        raise BackendError(
            "backend='mpi' works between processes that mpirun has started, and this one was not: take "
            "backend='gloo', or start all ranks with mpirun."
        )


def check_gpus(backend: str, processes: int) -> None:
    """Refuse nccl for more processes than this machine has GPUs: nccl connects no two processes on one GPU.

    Args:
        backend: of the process group.
        processes: those on this machine, the collector's included.

    Raises:
        BackendError: there are fewer GPUs.
    """
    if backend == "nccl" and torch.cuda.device_count() < processes:
        raise BackendError(
            f"backend='nccl' needs a GPU for each process, and this machine has {torch.cuda.device_count()} for the "
            f"collector and {processes - 1} nodes: take backend='gloo', or fewer nodes."
        )


def device_of(backend: str, rank: int) -> str:
    """Return the device that a rank sends messages from.

    Args:
        backend: of the process group.
        rank: of the process. With nccl, ranks that follow each other have different GPUs of a machine, unless
            ``LOCAL_RANK`` says which GPU.
    """
    if backend != "nccl":
        return "cpu"
    return f"cuda:{int(os.environ.get('LOCAL_RANK', rank)) % torch.cuda.device_count()}"


def new_groups(backend: str, store: Any, rank: int, size: int) -> tuple[PointToPoint, PointToPoint]:
    """Return the process groups of calls and of answers, so that the default group stays free for the program.

    They are one group, but for nccl: it carries the messages between two ranks one after another, and so a message
    would wait behind one that the other rank has yet to send.

    Raises:
        BackendError: see :func:`check_backend`.
    """
    check_backend(backend)
    pair: Any
    if backend == "nccl":
        torch.cuda.set_device(device_of(backend, rank))
        options = dist.ProcessGroupNCCL.Options()
        options._timeout = _FOREVER
        stores = (PrefixStore(direction, store) for direction in ("calls", "answers"))
        pair = tuple(dist.ProcessGroupNCCL(each, rank, size, options) for each in stores)
    elif backend == "mpi":
        dist.init_process_group("mpi")
        pair = (dist.group.WORLD,) * 2
    else:
        pair = (dist.ProcessGroupGloo(store, rank, size, _FOREVER),) * 2
    calls, answers = pair
    return calls, answers


class Channel:
    """Send messages to one rank, and receive its messages. Sending and receiving may be in different threads.

    Args:
        groups: the process groups of messages to the other rank, and from it.
        peer: the other rank.
        tags: of messages to the other rank, and from it.
        device: where messages are sent from, see :func:`device_of`.
    """

    def __init__(
        self, groups: tuple[PointToPoint, PointToPoint], peer: int, tags: tuple[int, int], device: str = "cpu"
    ) -> None:
        self._group_to, self._group_from = groups
        self._peer, self._device = peer, device
        self._to, self._from = tags

    def send(self, message: Any) -> None:
        """Send a message.

        Raises:
            RuntimeError: the connection is closed.
        """
        packed = dumps(message)
        sizes = [buffer.nbytes for buffer in packed.buffers]
        head = np.frombuffer(pickle.dumps((packed.pickle, sizes)), np.uint8)
        self._put(torch.tensor([head.nbytes], device="cpu"))
        self._put(torch.from_numpy(head.copy()))
        if sum(sizes) <= _JOINED:
            if any(sizes):
                self._put(torch.from_numpy(np.concatenate(packed.buffers)))
            return
        for buffer in packed.buffers:
            if buffer.nbytes:
                self._put(torch.from_numpy(buffer))

    def receive(self) -> Any:
        """Wait for a message.

        Raises:
            RuntimeError: the connection is closed.
        """
        size = torch.empty(1, dtype=torch.int64, device="cpu")
        self._get(size)
        payload, sizes = pickle.loads(self._bytes(int(size)).numpy().tobytes())
        if sum(sizes) <= _JOINED:
            joined = self._bytes(sum(sizes)).numpy()
            buffers = np.split(joined, np.cumsum(sizes)[:-1]) if sizes else []
        else:
            buffers = [self._bytes(count).numpy() for count in sizes]
        return loads(Packed(payload, buffers))

    def _bytes(self, size: int) -> torch.Tensor:
        tensor = torch.empty(size, dtype=torch.uint8, device="cpu")
        if size:
            self._get(tensor)
        return tensor

    def _put(self, tensor: torch.Tensor) -> None:
        self._group_to.send([tensor.to(self._device)], self._peer, self._to).wait()

    def _get(self, tensor: torch.Tensor) -> None:
        if self._device == "cpu":
            self._group_from.recv([tensor], self._peer, self._from).wait()
            return
        received = torch.empty_like(tensor, device=self._device)
        self._group_from.recv([received], self._peer, self._from).wait()
        tensor.copy_(received)
