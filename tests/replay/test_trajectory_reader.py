"""Trajectories are read one by one from buffers, TensorDicts and folders."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from tensordict import TensorDict

from steppe.errors import NotSupported, SpecError, StateError
from steppe_replay import LazyMemmapStorage, LazyTensorStorage, ListStorage, ReplayBuffer, iter_trajectories
from tests.replay.data import trajectories


def lengths(source: Any) -> list[int]:
    """Return the lengths of the trajectories of a source, whose steps count up."""
    steps = list(iter_trajectories(source))
    for each in steps:
        assert torch.equal(each["step"], each["step"][0] + torch.arange(len(each)))
        assert len(each["collector", "traj_ids"].unique()) == 1
    return [len(each) for each in steps]


def test_a_tensordict_has_the_trajectories_of_each_row() -> None:
    rows = torch.stack([trajectories(3, 5, 2), trajectories(9, 1, first_id=7)])
    assert lengths(rows) == [3, 5, 2, 9, 1]
    assert lengths(rows[0]) == [3, 5, 2]
    assert lengths(rows.unsqueeze(0)) == [3, 5, 2, 9, 1]
    assert lengths(trajectories(4, 4, open_end=True)[:6]) == [4, 2]


def test_numbers_of_trajectories_end_them_too() -> None:
    data = trajectories(4, 3)
    data["next", "done"][:] = False
    assert lengths(data) == [4, 3]


@pytest.mark.parametrize("ndim", [1, 2])
def test_a_folder_of_a_storage_is_read_from_disk(ndim: int, tmp_path: Path) -> None:
    data = trajectories(6, 7, 2)
    buffer = ReplayBuffer(storage=LazyMemmapStorage(12 * ndim, scratch_dir=tmp_path / "rows", ndim=ndim))
    buffer.extend(data if ndim == 1 else torch.stack([data, trajectories(4, 11, first_id=9)]))
    expected = [3, 7, 2] if ndim == 1 else [3, 1, 7, 11, 2]
    buffer.dumps(tmp_path / "saved")

    assert sorted(lengths(buffer)) == sorted(expected), "the oldest three steps were overwritten"
    assert sorted(lengths(tmp_path / "rows")) == sorted(lengths(str(tmp_path / "saved"))) == sorted(expected)


def test_a_memory_mapped_tensordict_is_read_from_disk(tmp_path: Path) -> None:
    torch.stack([trajectories(3, 5), trajectories(8, first_id=4)]).memmap(tmp_path)
    assert lengths(tmp_path) == [3, 5, 8]


def test_data_without_trajectories_is_refused(tmp_path: Path) -> None:
    wrong: list[tuple[Any, type[Exception], str]] = [
        (TensorDict({"a": torch.zeros(3)}, [3]), SpecError, "no entry \\('next', 'done'\\)"),
        (trajectories(3)[:0], StateError, "no steps"),
        (ReplayBuffer(storage=LazyTensorStorage(4)), StateError, "empty"),
        (ReplayBuffer(storage=ListStorage(4)), NotSupported, "found ListStorage"),
        (tmp_path, StateError, "has no replay buffer"),
        (17, TypeError, "found int"),
    ]
    for source, kind, text in wrong:
        with pytest.raises(kind, match=text):
            list(iter_trajectories(source))
