"""Saved buffers, and the files that a killed program leaves."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from steppe.errors import SpecError, StateError
from steppe_replay import (
    LazyMemmapStorage,
    LazyTensorStorage,
    ListStorage,
    ReplayBuffer,
    SamplerWithoutReplacement,
    TensorDictMaxValueWriter,
    TensorDictPrioritizedReplayBuffer,
)
from tests.limits import CHILD
from tests.replay.data import numbered

MADE: dict[str, Any] = {
    "tensors": lambda: ReplayBuffer(storage=LazyTensorStorage(10), batch_size=4),
    "epochs": lambda: ReplayBuffer(storage=LazyTensorStorage(10), sampler=SamplerWithoutReplacement(), batch_size=4),
    "file": lambda: ReplayBuffer(storage=LazyMemmapStorage(10), batch_size=4),
    "list": lambda: ReplayBuffer(storage=ListStorage(10), batch_size=4),
    "compact": lambda: ReplayBuffer(storage=LazyTensorStorage(10, compact=[]), batch_size=4),
    "priorities": lambda: TensorDictPrioritizedReplayBuffer(
        alpha=0.7, beta=0.5, storage=LazyTensorStorage(10), batch_size=4
    ),
}


@pytest.mark.parametrize("make", MADE.values(), ids=MADE)
def test_a_loaded_buffer_continues_where_it_was_saved(make: Any, tmp_path: Path) -> None:
    buffer, other = make(), make()
    buffer.extend(numbered(14))
    buffer.update_priority(torch.arange(10), torch.arange(10.0))
    buffer.sample()
    buffer.dumps(tmp_path / "saved")
    other.extend(numbered(3, 50))
    other.loads(tmp_path / "saved")

    assert len(other) == 10
    assert sorted(
        torch.stack([row["number"] for row in other.storage.take(other.storage.all_rows())]).tolist()
    ) == list(range(4, 14))
    other.extend(numbered(2, 90))
    kept = {int(row["number"]) for row in other.storage.take(other.storage.all_rows())}
    assert kept == {*range(6, 14), 90, 91}, "the oldest rows are overwritten first"


def test_epochs_and_priorities_are_saved(tmp_path: Path) -> None:
    buffer, other = MADE["priorities"](), MADE["priorities"]()
    buffer.extend(numbered(10))
    buffer.update_priority(torch.arange(10), torch.zeros(10).index_fill(0, torch.tensor([6]), 1e6))
    buffer.dumps(tmp_path)
    other.loads(tmp_path)
    assert set(other.sample(50)["number"].tolist()) == {6}

    epoch, rest = MADE["epochs"](), MADE["epochs"]()
    epoch.extend(numbered(10))
    seen = epoch.sample()["number"].tolist()
    rest.load_state_dict(epoch.state_dict())
    seen += rest.sample()["number"].tolist() + rest.sample()["number"].tolist()
    assert sorted(seen) == list(range(10))


def test_the_best_rows_stay_the_best(tmp_path: Path) -> None:
    def make() -> ReplayBuffer:
        return ReplayBuffer(storage=LazyTensorStorage(3), writer=TensorDictMaxValueWriter(rank_key="number"))

    buffer, other = make(), make()
    buffer.extend(numbered(9))
    buffer.dumps(tmp_path)
    other.loads(tmp_path)
    other.extend(numbered(8))
    assert sorted(other[:]["number"].tolist()) == [7, 7, 8]


def test_a_second_save_replaces_the_first(tmp_path: Path) -> None:
    buffer = MADE["tensors"]()
    for first in (0, 20):
        buffer.extend(numbered(10, first))
        buffer.dumps(tmp_path)
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["current", "state-2"]
    (tmp_path / "state-3").mkdir()  # of a save that was killed
    other = MADE["tensors"]()
    other.loads(tmp_path)
    assert other[:]["number"].min() == 20
    buffer.dumps(tmp_path)
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["current", "state-4"]
    with pytest.raises(StateError, match="has no replay buffer"):
        other.loads(tmp_path / "nowhere")


def test_a_file_is_opened_again(tmp_path: Path) -> None:
    buffer = ReplayBuffer(storage=LazyMemmapStorage(20, scratch_dir=tmp_path))
    buffer.extend(numbered(15))
    del buffer
    with pytest.raises(StateError, match="existsok=True"):
        LazyMemmapStorage(20, scratch_dir=tmp_path)
    with pytest.raises(SpecError, match="room for 20 rows, and max_size is 30"):
        LazyMemmapStorage(30, scratch_dir=tmp_path, existsok=True)
    again = ReplayBuffer(storage=LazyMemmapStorage(20, scratch_dir=tmp_path, existsok=True))
    assert (again[:] == numbered(15)).all()
    again.extend(numbered(10, 15))
    assert sorted(again[:]["number"].tolist()) == list(range(5, 25))


def test_millions_of_rows_take_the_room_of_those_written(tmp_path: Path) -> None:
    """A file is larger than memory: 10 million rows of 30 KB, of which a thousand were written."""
    buffer = ReplayBuffer(storage=LazyMemmapStorage(10_000_000, scratch_dir=tmp_path), batch_size=64)
    data = numbered(1000).select("number")
    data["pixels"] = data["number"].to(torch.uint8).reshape(-1, 1, 1).expand(-1, 100, 300)
    buffer.extend(data)
    stat = (tmp_path / "rows.bin").stat()
    assert stat.st_size > 3e11
    assert stat.st_blocks * 512 < 1e8
    sample = buffer.sample()
    assert torch.equal(sample["pixels"][:, 0, 0], sample["number"].to(torch.uint8))


PROGRAM = """
import sys, torch
from tensordict import TensorDict
from steppe_replay import LazyMemmapStorage, ReplayBuffer
buffer = ReplayBuffer(storage=LazyMemmapStorage(500, scratch_dir=sys.argv[1]))
number = 0
while True:
    value = torch.full((100, 5000), number)
    buffer.extend(TensorDict({"a": value, "b": value.clone()}, [100]))
    if number == 20:
        print("begun", flush=True)
    number += 1
"""


def test_a_killed_program_leaves_a_whole_checkpoint(tmp_path: Path) -> None:
    process = subprocess.Popen([sys.executable, "-c", PROGRAM, str(tmp_path)], stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"begun\n"
    time.sleep(0.05)
    os.kill(process.pid, signal.SIGKILL)
    process.wait(CHILD)
    process.stdout.close()

    loaded = ReplayBuffer(storage=LazyTensorStorage(500))
    loaded.loads(tmp_path)
    again = ReplayBuffer(storage=LazyMemmapStorage(500, scratch_dir=tmp_path, existsok=True), batch_size=1000)
    for data in (loaded[:], again[:], again.sample()):
        assert len(data) >= 400
        assert torch.equal(data["a"], data["b"])
        assert (data["a"] == data["a"][:, :1]).all()
    assert len(loaded) == len(again)
    again.extend(data[:400])
    assert len(again) >= len(loaded)
