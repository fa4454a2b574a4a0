"""Rows of writers that are stopped or killed in the middle of a row."""

from __future__ import annotations

import os
import shutil
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
from steppe_replay.frames import FrameStore
from steppe_replay.journal import N_SLOTS
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

    def half(storage: TensorStorage, slot: int, start: int, n: int, *more: Any, **options: Any) -> None:
        middle = start % 100 + n // 2
        storage._leaves["a",].rows[start % 100 : start % 100 + n] = 2
        storage._leaves["b",].rows[start % 100 : middle] = 2
        storage._leaves["b",].rows[middle, :5] = 2
        os.kill(os.getpid(), number)
        copy(storage, slot, start, n, *more, **options)

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


def episode(first: int, n: int) -> TensorDict:
    """Steps with stacks of two frames, whose values count on from ``first``."""
    count = torch.arange(first, first + n)[:, None]
    stacks = (torch.cat([count, count + 1], -1)[..., None] * torch.ones(8, dtype=torch.int64)).contiguous()
    following = TensorDict({"pixels": stacks + 1, "done": torch.zeros(n, 1, dtype=torch.bool)}, [n])
    return TensorDict({"pixels": stacks, "count": count, "next": following}, [n])


def signal_between_frames(worker: Worker, task: tuple[Any, int]) -> None:
    """Write an episode, and go on with it until a signal comes while its frames are being written."""
    writer, number = task
    writer.extend(episode(1000, 10))
    worker.say(os.getpid())
    write = FrameStore.write

    def half(store: FrameStore, start: int, n: int, *args: Any, **options: Any) -> None:
        write(store, start, n // 2, args[0], *(each[: n // 2] for each in args[1:]), **options)
        store._frames[(start + n // 2) % args[0], :3] = -1
        os.kill(os.getpid(), number)
        write(store, start, n, *args, **options)

    FrameStore.write = half  # type: ignore[method-assign]
    writer.extend(episode(1010, 20))
    worker.say("went on")


@pytest.mark.parametrize("number", [signal.SIGSTOP, signal.SIGKILL])
def test_frames_that_are_stored_once_are_finished_too(number: signal.Signals) -> None:
    """Others compare and store the frames of a writer that was stopped or killed between them."""
    storage = LazyTensorStorage(100, compact={"pixels": 2})
    buffer = ReplayBuffer(storage=storage, batch_size=50)
    writers = buffer.writers(1, episode(0, 1))
    assert writers is not None
    buffer.extend(episode(0, 80))
    pool = Pool(1, "tests.replay.test_journal:signal_between_frames")

    def counts_of_whole_rows() -> list[int]:
        data = buffer[:]
        assert (data["pixels"] == data["count"][..., None] + torch.tensor([[0], [1]])).all()
        assert torch.equal(data["next", "pixels"], data["pixels"] + 1)
        return sorted(data["count"].flatten().tolist())

    try:
        pool.begin([(writers[0], int(number))])
        pid = pool.receive(0)
        assert within_limit(lambda: state_of(pid) in "TZX")
        assert within_limit(lambda: len(buffer) > 0 and buffer.write_count == 110)
        expected = [*range(80), *range(1000, 1030)]
        remaining = counts_of_whole_rows()
        assert set(range(1000, 1030)) < set(remaining) < set(expected)
        if number == signal.SIGSTOP:
            os.kill(pid, signal.SIGCONT)
            assert pool.receive(0) == "went on"
            assert counts_of_whole_rows() == remaining
        buffer.extend(episode(2000, 150))
        assert set(counts_of_whole_rows()) <= set(range(2050, 2150))
        assert len(buffer) >= 98
    finally:
        pool.kill()
        pool.stop(1.0)


def die_with_spare_frames(worker: Worker, writer: Any) -> None:
    """Write an episode, and die before the spare frames of another one are finished."""
    writer.extend(episode(1000, 10))
    worker.say(os.getpid())
    writer.storage._frames[0].spare.finish = lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL)
    writer.extend(episode(3000, 20))


def test_spare_frames_of_a_killed_writer_are_free_again() -> None:
    storage = LazyTensorStorage(100, compact={"pixels": 2})
    buffer = ReplayBuffer(storage=storage, batch_size=50)
    writers = buffer.writers(1, episode(0, 1))
    assert writers is not None
    buffer.extend(episode(0, 80))
    pool = Pool(1, "tests.replay.test_journal:die_with_spare_frames")
    try:
        pool.begin([writers[0]])
        pid = pool.receive(0)
        assert within_limit(lambda: state_of(pid) in "ZX")
        assert within_limit(lambda: len(buffer) > 0 and buffer.write_count == 110)
    finally:
        pool.kill()
        pool.stop(1.0)
    spare = storage._frames[0].spare
    assert (spare.stamps < 0).any()
    for first in (2000, 4000):
        buffer.extend(episode(first, 30))
    assert spare.settled
    assert (spare.stamps >= 0).all()
    data = buffer[:]
    assert (data["pixels"] == data["count"][..., None] + torch.tensor([[0], [1]])).all()


def state_of(pid: int) -> str:
    """The state of a process as the system names it; X if it has ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return "X"


def test_rows_of_a_killed_program_are_finished_later(tmp_path: Path) -> None:
    """Loading, and a storage that opens the folder, finish the rows of the killed writer."""
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
    copied = shutil.copytree(tmp_path, tmp_path / "copy")
    loaded = ReplayBuffer(storage=LazyTensorStorage(100), batch_size=50)
    loaded.loads(copied)
    assert counts(loaded) == {0: 50, 1: 10, 2: 40}
    again = ReplayBuffer(storage=LazyMemmapStorage(100, scratch_dir=tmp_path, existsok=True), batch_size=50)
    assert counts(again) == {0: 50, 1: 10, 2: 40}


def test_a_writer_without_a_place_in_the_journal_warns() -> None:
    buffer = ReplayBuffer(storage=LazyTensorStorage(1000), batch_size=5)
    writers = buffer.writers(N_SLOTS + 1, rows(0, 1))
    assert writers is not None
    for writer in writers[:-1]:
        writer.extend(rows(1, 2))
    with pytest.warns(RuntimeWarning, match=f"{N_SLOTS} writers of this storage have a journal.*Write with fewer"):
        writers[-1].extend(rows(2, 2))
    assert counts(buffer) == {1: 2 * N_SLOTS, 2: 2}
