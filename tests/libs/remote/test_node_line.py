"""Messages between a caller and a worker on its machine."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from steppe.collectors import STOP
from steppe.systems import HAS_PROC
from steppe_remote.node_line import Line, LineOfWorker
from tests.limits import CHILD

pytestmark = pytest.mark.skipif(not HAS_PROC, reason="pipes are opened through /proc")


@pytest.fixture
def ends() -> Iterator[tuple[Line, LineOfWorker]]:
    line = Line()
    worker = LineOfWorker(line.far_end())
    line.begin("serving")
    yield line, worker
    worker.close()
    line.close()


def test_a_message_arrives_with_its_version(ends: tuple[Line, LineOfWorker]) -> None:
    line, worker = ends
    line.call(("batch", False, 2), 5)

    assert worker.receive() == (("batch", False, 2), 5)


def test_large_answers_arrive_whole(ends: tuple[Line, LineOfWorker]) -> None:
    line, worker = ends
    values = torch.arange(300_000)
    sender = threading.Thread(target=worker.send, args=(("done", values),))
    sender.start()
    kind, received = line.receive()
    sender.join(CHILD)

    assert kind == "done"
    assert torch.equal(received, values)


def test_an_interrupt_holds_until_the_next_call(ends: tuple[Line, LineOfWorker]) -> None:
    line, worker = ends
    line.interrupt()
    interrupted = worker.flags[STOP]
    line.call("next", 0)

    assert (interrupted, worker.flags[STOP]) == (1, 0)


def test_the_end_of_a_worker_is_a_message(ends: tuple[Line, LineOfWorker]) -> None:
    line, worker = ends
    before = line.poll()
    worker.close()

    assert (before, line.poll()) == (False, True)
    with pytest.raises((EOFError, OSError)):
        line.receive()


def test_a_worker_whose_caller_has_ended_stops(ends: tuple[Line, LineOfWorker]) -> None:
    line, worker = ends
    line.close()

    assert worker.wait(CHILD)
    assert worker.receive() is None
    worker.send(("done", None))  # is lost, without an error


def test_a_line_leaves_no_descriptor_open() -> None:
    def descriptors() -> Any:
        return len(os.listdir("/proc/self/fd"))

    before = descriptors()
    line = Line()
    worker = LineOfWorker(line.far_end())
    line.begin("serving")
    worker.close()
    line.close()
    del line, worker

    assert descriptors() == before
