"""NodeMemory: memory of the caller that workers on the same machine write their batches to."""

from __future__ import annotations

import os
import pickle
from typing import NamedTuple

from steppe.collectors import BatchMemory
from steppe.errors import WorkerError
from steppe.specs import Composite
from steppe.workers import SharedFile

__all__ = ["NodeMemory"]


class NodeMemory(NamedTuple):
    """Where the memory of batches is, for a worker that may be on this machine, or on another one.

    Attributes:
        spec: the spec of a batch of one worker.
        rows: blocks and workers.
        file: the pickled :class:`~steppe.workers.SharedFile`: unpickling it fails where the file cannot be opened.
        nbytes: the size of the memory, behind which the file has the token.
        token: random bytes. Machines number their processes and files alike, so a worker on another machine may find a
            file with the same numbers, but not with these bytes.
    """

    spec: Composite
    rows: tuple[int, ...]
    file: bytes
    nbytes: int
    token: bytes

    @classmethod
    def of(cls, memory: BatchMemory, file: SharedFile) -> NodeMemory:
        """Return what workers open the memory with, as long as its file is kept."""
        storage, token = memory.storage, os.urandom(16)
        nbytes = storage.layout.nbytes
        os.pwrite(file.fd, token, nbytes)
        return cls(storage.spec, storage.rows, pickle.dumps(file), nbytes, token)

    def open(self) -> int | None:
        """Return a descriptor of the memory; None if it is on another machine, or this process may not open it."""
        try:
            file: SharedFile = pickle.loads(self.file)
        except WorkerError:
            return None
        is_same = os.pread(file.fd, len(self.token), self.nbytes) == self.token
        return os.dup(file.fd) if is_same else None
