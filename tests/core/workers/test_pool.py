"""A pool of workers, for something that is no environment."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from steppe.errors import StateError, WorkerError, WorkerTimeout
from steppe.workers import Failure, Pool, other_process

pytestmark = pytest.mark.timeout(120)

CONSUMER = """
import os, time
import numpy as np
from steppe.workers import ItemError, Service

def squares(worker, scale):
    worker.say(("ready", worker.index))
    worker.serve(Squares(worker.index, scale))

class Squares(Service):
    def __init__(self, index, scale):
        self.index, self.scale = index, scale

    def call(self, message):
        if message == "raise":
            try:
                raise ZeroDivisionError("no such number")
            except ZeroDivisionError as error:
                raise ItemError(10 + self.index, "squaring") from error
        if message == "never":
            time.sleep(1000)
        return self.scale(message)

    def share(self, worker, words, message, fds):
        self.numbers = np.frombuffer(words.extra, np.int64)
        self.offset = message

    def order(self, order, argument):
        if order == 2:
            raise ValueError("order 2")
        self.numbers[self.index] = argument**2 + self.offset
        return argument

def unready(worker, payload):
    raise RuntimeError("cannot begin")
"""


@pytest.fixture
def consumer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "a_consumer.py").write_text(CONSUMER)
    monkeypatch.syspath_prepend(str(tmp_path))
    return "a_consumer"


@pytest.fixture
def pool(consumer: str) -> Iterator[Pool]:
    factor = 3
    pool = Pool(2, f"{consumer}:squares", label="number", indices=[range(10, 11), range(11, 14)])
    pool.begin([lambda x: x * factor] * 2)
    assert [pool.receive(w) for w in range(2)] == [("ready", 0), ("ready", 1)]
    yield pool
    pool.stop()


def is_running(pid: int) -> bool:
    """Whether a process exists and is not a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except FileNotFoundError:
        return False


def test_workers_answer_calls_with_what_they_were_sent_by_value(pool: Pool) -> None:
    assert pool.ask({0: 5, 1: 7}) == {0: 15, 1: 21}
    assert len({*pool.pids, os.getpid()}) == 3


def test_workers_answer_orders_with_a_number_and_what_they_write(pool: Pool) -> None:
    words = pool.share(2 * 8, message=100)
    numbers = np.frombuffer(words.extra, np.int64)

    assert pool.round(1, 4) == 8
    assert numbers.tolist() == [116, 116]
    assert pool.round(1, 5, only=[False, True], overlap=lambda: 20) == 25
    assert numbers.tolist() == [116, 125]


def test_workers_write_to_the_memory_that_was_shared_last(pool: Pool) -> None:
    pool.share(2 * 8, message=100)
    pool.round(1, 4)
    words = pool.share(2 * 8, message=200)
    numbers = np.frombuffer(words.extra, np.int64)
    assert pool.round(1, 3) == 6
    assert pool.round(1, 5) == 10
    assert numbers.tolist() == [225, 225]
    assert pool.ask({1: 2}) == {1: 6}


def test_single_workers_carry_out_calls_and_orders_at_once(pool: Pool) -> None:
    pool.share(2 * 8, message=0)
    pool.call(0, 2)
    pool.order(1, 1, 9)
    found: dict[int, int] = {}
    while len(found) < 2:
        if 0 not in found and pool.has_message(0):
            found[0] = pool.receive(0)
        elif 1 not in found and pool.has_finished(1):
            found[1] = pool.order_result(1)
        else:
            pool.wait_any(timeout=60)

    assert found == {0: 6, 1: 9}


def test_a_worker_error_names_worker_item_and_line(pool: Pool) -> None:
    with pytest.raises(WorkerError, match="Worker 1 raised in squaring of number 11: ZeroDivisionError") as caught:
        pool.ask({0: 1, 1: "raise"})

    assert (caught.value.worker, caught.value.env) == (1, 11)
    assert "a_consumer.py" in caught.value.remote_traceback
    assert pool.in_step
    assert pool.ask({1: 1}) == {1: 3}


def test_an_order_that_raises_is_an_error_of_the_round(pool: Pool) -> None:
    pool.share(2 * 8, message=0)

    with pytest.raises(WorkerError, match="raised in an order of its numbers: ValueError: order 2"):
        pool.round(2)


def test_a_worker_that_is_killed_is_named_and_ends_a_wait(pool: Pool) -> None:
    os.kill(pool.pids[1], signal.SIGKILL)

    assert pool.wait_any(timeout=60) == [1]
    with pytest.raises(WorkerError, match=r"Worker 1 .* ended unexpectedly, at work on numbers 11 to 13"):
        pool.unexpected(1)
    with pytest.raises(WorkerError, match=r"Worker 1 .* ended unexpectedly"):
        pool.call(1, "nobody reads it")


def test_a_worker_that_does_not_answer_is_late_and_is_ended(pool: Pool) -> None:
    with pytest.raises(WorkerTimeout, match=r"Worker 0, at work on number 10, did not answer within 0\.1 s"):
        pool.ask({0: "never"}, timeout=0.1)

    assert not pool.in_step
    pids = pool.pids
    pool.stop(0.1)
    # They have closed their connections, which is the last that they do: the system takes a moment to end them.
    deadline = time.monotonic() + 30
    while (left := [pid for pid in pids if is_running(pid)]) and time.monotonic() < deadline:
        pass
    assert left == []


@pytest.mark.parametrize(
    ("function", "message"),
    [
        ("unready", "Worker 0 raised in start of its tasks: RuntimeError: cannot begin"),
        ("nothing", "has no attribute 'nothing'"),
    ],
)
def test_a_worker_that_cannot_begin_is_heard(function: str, message: str, consumer: str) -> None:
    pool = Pool(1, f"{consumer}:{function}")
    pool.begin([None])

    with pytest.raises(WorkerError, match=message):
        pool.receive(0)
    pool.stop()


def test_a_pool_that_another_process_started_is_not_ours(pool: Pool) -> None:
    pool.owner += 1
    try:
        assert not pool.is_ours
        assert isinstance(other_process(pool, pool.owner), StateError)
    finally:
        pool.owner -= 1


def test_an_exception_that_cannot_be_printed_is_reported() -> None:
    class Silent(Exception):
        def __str__(self) -> str:
            raise ValueError

    failure = Failure.of(Silent(), "a call")

    assert failure.summary == "Silent, which cannot be printed"
    assert failure.error("task", None).worker is None
