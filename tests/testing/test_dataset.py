from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from tensordict import MemoryMappedTensor, NonTensorData, TensorDict, lazy_stack  # noqa: E402

from steppe.cli import UsageError  # noqa: E402
from steppe_testing.commands.dataset import Dataset  # noqa: E402


def batch(start, length, n=2):
    values = torch.arange(start, start + length).expand(n, length).clone()
    data = {"obs": values.unsqueeze(-1).float(), "next": {"done": values.unsqueeze(-1) % 2 == 0}}
    return TensorDict(data, [n, length], names=[None, "time"])


def test_batches_become_one_memory_mapped_tensordict(tmp_path, saved_time):
    dataset = Dataset(tmp_path / "out", rows=5)
    for start in (0, 3):
        dataset.write(batch(start, 3))
    finished = dataset.finish()
    dataset.discard()
    loaded = TensorDict.load_memmap(tmp_path / "out")
    assert (finished == loaded).all()
    assert loaded.batch_size == (2, 5)
    assert loaded.names == [None, saved_time]
    assert isinstance(loaded["obs"], MemoryMappedTensor)
    assert (loaded == batch(0, 5)).all()
    assert dataset.frames == 10


def test_a_dataset_larger_than_the_disk_is_refused(tmp_path):
    """A data set larger than the free space is refused before files are made."""
    dataset = Dataset(tmp_path / "out", rows=10**14)
    with pytest.raises(UsageError, match=r"200000000000000 frames take .* GiB, and .* GiB are free there"):
        dataset.write(batch(0, 3))
    dataset.discard()
    assert list(tmp_path.iterdir()) == []


def test_finishing_early_keeps_what_was_written(tmp_path):
    dataset = Dataset(tmp_path / "out", rows=100)
    dataset.write(batch(0, 3))
    dataset.finish()
    dataset.discard()
    assert (TensorDict.load_memmap(tmp_path / "out") == batch(0, 3)).all()


def test_nothing_is_left_when_it_is_discarded(tmp_path):
    dataset = Dataset(tmp_path / "out", rows=5)
    dataset.write(batch(0, 3))
    dataset.discard()
    assert list(tmp_path.iterdir()) == []


def test_nothing_is_left_beside_a_finished_folder(tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "old.txt").write_text("old")
    dataset = Dataset(tmp_path / "out", rows=3)
    dataset.write(batch(0, 3))
    assert (tmp_path / "out" / "old.txt").exists()
    dataset.finish()
    dataset.discard()
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    assert not (tmp_path / "out" / "old.txt").exists()


def test_the_folder_can_be_read_by_whom_the_umask_allows(tmp_path):
    reference = tmp_path / "reference"
    reference.mkdir()
    dataset = Dataset(tmp_path / "out", rows=3)
    dataset.write(batch(0, 3))
    dataset.finish()
    dataset.discard()
    assert (tmp_path / "out").stat().st_mode == reference.stat().st_mode


def test_non_tensor_data_is_kept(tmp_path):
    def texts(*words):
        rows = [TensorDict({"obs": torch.zeros(1), "text": NonTensorData(word)}) for word in words]
        return lazy_stack([lazy_stack(rows)])

    dataset = Dataset(tmp_path / "out", rows=3)
    dataset.write(texts("a", "b"))
    dataset.write(texts("c", "d"))
    dataset.finish()
    dataset.discard()
    loaded = TensorDict.load_memmap(tmp_path / "out")
    assert loaded.shape == (1, 3)
    assert loaded["text"] == [["a", "b", "c"]]


def test_a_folder_that_cannot_be_made_is_wrong_input(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="cannot be written"):
        Dataset(tmp_path / "file" / "out", rows=3)


def test_rows_of_nested_batches_are_flattened(tmp_path):
    dataset = Dataset(tmp_path / "out", rows=4)
    wide = batch(0, 4, n=6)
    dataset.write(wide[:, :3].reshape(2, 3, 3))
    dataset.write(wide[:, 3:].reshape(2, 3, 1))
    dataset.finish()
    dataset.discard()
    assert dataset.frames == 24
    assert (TensorDict.load_memmap(tmp_path / "out") == wide).all()
