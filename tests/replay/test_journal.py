"""Rows of writers that are stopped or killed in the middle of a row."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from tensordict import TensorDict

from steppe.workers import Pool, Worker
from steppe_replay import LazyMemmapStorage, LazyTensorStorage, ReplayBuffer
from steppe_replay.tensor_storage import TensorStorage
from tests.limits import CHILD


def rows(value: int, n: int) -> TensorDict:
    entry = torch.full((n, 16), value, dtype=torch.int64)
    return TensorDict({"a": entry, "b": entry.clone(), "c": entry.clone()}, [n])


def signal_in_the_middle(worker: Worker, task: tuple[Any, int]) -> None:
    """Write rows, and send this process a signal when the second of three entries is half written."""
    writer, number = task
    writer.extend(rows(1, 10))
    worker.say(os.getpid())
    copy = TensorStorage._copy_journal

    def half(storage: TensorStorage, slot: int, start: int, n: int) -> None:
        middle = start % 100 + n // 2
        storage._leaves["a",].rows[start % 100 : start % 100 + n] = 2
        storage._leaves["b",].rows[start % 100 : middle] = 2
        storage._leaves["b",].rows[middle, :5] = 2
        os.kill(os.getpid(), number)
        copy(storage, slot, start, n)

    TensorStorage._copy_journal = half  # type: ignore[method-assign]
    writer.extend(rows(2, 40))
    worker.say("went on")


def within_limit(condition: Callable[[], bool]) -> bool:
    """Wait for a condition; return whether it came."""
    end = time.monotonic() + CHILD
    while not condition() and time.monotonic() < end:
        time.sleep(0.005)
    return condition()


def counts(buffer: ReplayBuffer) -> dict[int, int]:
    """How many rows have each value, all of which are whole."""
    data = buffer[:]
    for _ in range(20):
        sample = buffer.sample()
        for name in "abc":
            assert (sample[name] == sample["a"][:, :1]).all()
    for name in "abc":
        assert (data[name] == data["a"][:, :1]).all()
    values, numbers = data["a"][:, 0].unique(return_counts=True)
    return dict(zip(values.tolist(), numbers.tolist(), strict=True))


@pytest.mark.parametrize("storage", [LazyTensorStorage, LazyMemmapStorage])
@pytest.mark.parametrize("number", [signal.SIGSTOP, signal.SIGKILL])
def test_a_writer_that_stops_in_a_row_costs_nothing(storage: Any, number: signal.Signals) -> None:
    """Others finish its rows, write around them, and write over them when it has gone on or has ended."""
    buffer = ReplayBuffer(storage=storage(100), batch_size=50)
    writers = buffer.writers(1, rows(0, 1))
    assert writers is not None
    buffer.extend(rows(0, 90))
    pool = Pool(1, "tests.replay.test_journal:signal_in_the_middle")
    try:
        pool.begin([(writers[0], int(number))])
        pid = pool.receive(0)
        assert within_limit(lambda: state_of(pid) in "TZX")
        buffer.sample()
        assert within_limit(lambda: len(buffer) == 100)
        assert counts(buffer) == {0: 50, 1: 10, 2: 40}
        buffer.extend(rows(3, 100))
        if number == signal.SIGSTOP:
            assert counts(buffer)[2] == 40
            os.kill(pid, signal.SIGCONT)
            assert pool.receive(0) == "went on"
            assert counts(buffer)[2] == 40
        buffer.extend(rows(4, 100))
        assert counts(buffer) == {4: 100}
    finally:
        pool.kill()
        pool.stop(1.0)


def state_of(pid: int) -> str:
    """The state of a process as the system names it; X if it has ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return "X"


def test_rows_of_a_killed_program_are_finished_later(tmp_path: Path) -> None:
    """A storage that opens the folder finishes the rows of the killed writer."""
    buffer = ReplayBuffer(storage=LazyMemmapStorage(100, scratch_dir=tmp_path))
    writers = buffer.writers(1, rows(0, 1))
    assert writers is not None
    buffer.extend(rows(0, 95))
    pool = Pool(1, "tests.replay.test_journal:signal_in_the_middle")
    try:
        pool.begin([(writers[0], int(signal.SIGKILL))])
        pid = pool.receive(0)
        assert within_limit(lambda: state_of(pid) in "ZX")
    finally:
        pool.kill()
        pool.stop(1.0)
    again = ReplayBuffer(storage=LazyMemmapStorage(100, scratch_dir=tmp_path, existsok=True), batch_size=50)
    assert counts(again) == {0: 50, 1: 10, 2: 40}
