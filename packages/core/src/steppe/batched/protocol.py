"""What the caller and its workers say to each other."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Attach", "Call", "Failure", "Op", "Ready", "Report", "RowMeta", "Setup", "Stop", "WorkerState"]


class Op(enum.IntEnum):
    """What the command word of a worker asks for."""

    STEP = 1
    STEP_AND_RESET = 2
    RESET = 3


class WorkerState(enum.Enum):
    """Where a worker stands, as its caller knows it."""

    STARTING = "starting"
    IDLE = "idle"
    BUSY = "busy"
    GONE = "gone"


@dataclass
class Setup:
    """First message to a worker: what surrounds it, and the environments that it makes.

    Attributes:
        worker: index of the worker.
        surroundings: pickled :class:`~steppe.batched.surroundings.Surroundings`.
        first_row: row of its first environment in the batch.
        factories: pickled list of factories, one for each row.
        report: rows whose specs are to be sent back.
    """

    worker: int
    surroundings: bytes
    first_row: int
    factories: bytes
    report: list[int]


@dataclass
class RowMeta:
    """What the batch needs to know of one environment without having it."""

    specs: dict[str, Any]
    batch_size: tuple[int, ...]
    device: Any
    batch_locked: bool
    env_info_spec: Any
    allow_done_after_reset: bool
    array_path: bool
    name: str
    names: list[Any] | None = None


@dataclass
class Ready:
    """A worker has made its environments."""

    metas: dict[int, RowMeta] = field(default_factory=dict)
    loaded: list[str] = field(default_factory=list)


@dataclass
class Attach:
    """The storage to write into; descriptors come with the message. ``spec`` None: data travels in messages."""

    spec: Any
    n_rows: int
    nbytes: int
    n_workers: int
    spin: bool


@dataclass
class Call:
    """Ask environments for something.

    Attributes:
        what: name of a method of :class:`~steppe.batched.worker.Worker`.
        rows: rows of the batch, all of them this worker's.
        args: one tuple of arguments for each row.
    """

    what: str
    rows: list[int]
    args: list[Any]


@dataclass
class Report:
    """The answer to a call: one value for each row."""

    values: list[Any]


@dataclass
class Failure:
    """An exception in a worker.

    Attributes:
        row: the environment it happened in, or None.
        doing: what the worker was doing, for the message: "step", "reset", "env.g".
        summary: type and text of the exception.
        traceback: as the worker would have printed it.
        exception: the pickled exception, or None where it cannot be pickled.
    """

    row: int | None
    doing: str
    summary: str
    traceback: str
    exception: bytes | None


@dataclass
class Stop:
    """Close the environments and end."""
