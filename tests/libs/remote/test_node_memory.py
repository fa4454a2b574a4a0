"""Memory of the caller, for workers on its machine."""

from __future__ import annotations

import os
import pickle
from collections.abc import Iterator

import pytest
import torch

from steppe import Composite, Unbounded
from steppe.collectors import BatchMemory
from steppe.storage import Storage
from steppe.systems import HAS_PROC
from steppe.workers import SharedFile
from steppe_remote.node_memory import NodeMemory

pytestmark = pytest.mark.skipif(not HAS_PROC, reason="memory is opened through /proc")


@pytest.fixture
def memory() -> BatchMemory:
    return BatchMemory(Composite(observation=Unbounded((5, 3)), shape=(5,)), 2, one_block=False)


@pytest.fixture
def file(memory: BatchMemory) -> Iterator[SharedFile]:
    file = SharedFile(fd=memory.storage.fd)
    yield file
    del file


def test_a_worker_writes_to_the_memory_of_the_caller(memory: BatchMemory, file: SharedFile) -> None:
    received: NodeMemory = pickle.loads(pickle.dumps(NodeMemory.of(memory, file)))
    fd = received.open()
    assert fd is not None
    opened = Storage(received.spec, received.rows, kind="shared", fd=fd)
    opened.tensors["observation"][0, 1] = 7.0

    assert memory.batch(1)["observation"].eq(7.0).all()
    assert memory.batch(0)["observation"].eq(0.0).all()


def test_memory_with_another_token_is_not_opened(memory: BatchMemory, file: SharedFile) -> None:
    """On another machine, the same numbers of process and file are those of something else."""
    before = len(os.listdir("/proc/self/fd"))
    elsewhere = NodeMemory.of(memory, file)._replace(token=b"sixteen bytes :)")

    assert elsewhere.open() is None
    assert len(os.listdir("/proc/self/fd")) == before


def test_memory_that_is_gone_is_not_opened(memory: BatchMemory) -> None:
    file = SharedFile(fd=memory.storage.fd)
    gone = NodeMemory.of(memory, file)
    del file

    assert gone.open() is None
    assert torch.is_tensor(memory.batch(0)["observation"])
