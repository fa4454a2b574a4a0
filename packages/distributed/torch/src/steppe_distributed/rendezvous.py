"""Where the nodes of a collector meet: the store of torch.distributed, in the process of the collector."""

from __future__ import annotations

import socket
from dataclasses import dataclass
from datetime import timedelta

from torch.distributed import TCPStore  # type: ignore[attr-defined]

from steppe.errors import SteppeError

__all__ = ["Meeting", "NodeError", "free_port", "host_name", "open_store"]

#: Seconds that an operation of the store may take once all nodes have met.
_STORE = 300.0


class NodeError(SteppeError, RuntimeError):
    """Nodes of a collector cannot be started, or do not come to the meeting place in time."""


@dataclass(frozen=True)
class Meeting:
    """What a node needs to meet the others.

    Attributes:
        host, port: address of the store.
        size: the number of nodes, and the process of the collector, which has rank 0.
        transport: ``"rpc"``, or the backend of a process group: ``"gloo"``, ``"nccl"`` or ``"mpi"``.
    """

    host: str
    port: int
    size: int
    transport: str

    def arguments(self, rank: int) -> list[str]:
        """Return the arguments of ``python -m steppe_distributed``."""
        return [self.host, str(self.port), str(self.size), self.transport, str(rank)]

    def store(self) -> TCPStore:
        """Connect to the store."""
        return TCPStore(self.host, self.port, is_master=False, timeout=timedelta(seconds=_STORE))


def open_store(name: str, host: str, port: int | None) -> TCPStore:
    """Open the store in this process.

    Args:
        name: of the collector, for errors.
        host: the name under which the nodes find this machine.
        port: its port; None for a free one.

    Raises:
        NodeError: the port is in use.
    """
    try:
        return TCPStore(host, port or 0, is_master=True, wait_for_workers=False, timeout=timedelta(seconds=_STORE))
    except (RuntimeError, OSError) as error:
        raise NodeError(
            f"{name}: port {port or 'of the system'} of {host} cannot be opened ({_first_line(error)}). It may be in "
            "use: pass another tcp_port=, or None for a free one."
        ) from error


def host_name(*, local: bool) -> str:
    """Return the name under which nodes find this machine; those of a ``local`` launcher are on it."""
    return "127.0.0.1" if local else socket.getfqdn()


def free_port() -> int:
    """Return a port of this machine that nothing listens at now."""
    with socket.socket() as listening:
        listening.bind(("", 0))
        return int(listening.getsockname()[1])


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]
