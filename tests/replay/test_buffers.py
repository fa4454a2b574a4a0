"""Replay buffers: writing, sampling, transforms, indices, errors."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tensordict import NonTensorStack, TensorDict

from steppe.errors import NotSupported, SpecError, StateError
from steppe.transforms import MultiStepTransform
from steppe_replay import (
    LazyMemmapStorage,
    LazyTensorStorage,
    ListStorage,
    ReplayBuffer,
    TensorDictMaxValueWriter,
    TensorDictReplayBuffer,
    TensorStorage,
)
from tests.replay.data import numbered

STORAGES: dict[str, Any] = {
    "memory": LazyTensorStorage,
    "shared memory": lambda n, **arguments: LazyTensorStorage(n, shared=True, **arguments),
    "file": LazyMemmapStorage,
}


@pytest.fixture(params=STORAGES.values(), ids=STORAGES)
def storage(request: Any) -> Any:
    return request.param


def test_samples_hold_rows_that_were_written(storage: Any) -> None:
    buffer = ReplayBuffer(storage=storage(50), batch_size=32)

    index = buffer.extend(numbered(20))
    sample = buffer.sample()

    assert index.tolist() == list(range(20))
    assert len(buffer) == buffer.write_count == 20
    assert sample.batch_size == (32,)
    expected = numbered(20)[sample["number"]]
    assert (sample == expected).all()
    assert sample["next", "reward"].dtype is torch.float32


def test_the_oldest_rows_are_overwritten(storage: Any) -> None:
    buffer = ReplayBuffer(storage=storage(10), batch_size=64)
    buffer.extend(numbered(8))
    index = buffer.extend(numbered(5, 8))

    assert index.tolist() == [8, 9, 0, 1, 2]
    assert len(buffer) == 10
    assert buffer.write_count == 13
    assert buffer[:]["number"].tolist() == [10, 11, 12, 3, 4, 5, 6, 7, 8, 9]
    assert set(buffer.sample(500)["number"].tolist()) == set(range(3, 13))


def test_more_rows_than_there_is_room_for_leave_the_last(storage: Any) -> None:
    buffer = ReplayBuffer(storage=storage(7))
    buffer.extend(numbered(40))

    assert sorted(buffer[:]["number"].tolist()) == list(range(33, 40))
    assert buffer.write_count == 40


def test_single_rows_are_added(storage: Any) -> None:
    buffer = ReplayBuffer(storage=storage(3), batch_size=2)
    indices = [int(buffer.add(row)) for row in numbered(5)]

    assert indices == [0, 1, 2, 0, 1]
    assert sorted(buffer[:]["number"].tolist()) == [2, 3, 4]


def test_a_sample_is_a_copy_that_never_changes(storage: Any) -> None:
    buffer = ReplayBuffer(storage=storage(10), batch_size=10)
    buffer.extend(numbered(10))
    sample = buffer.sample()
    before = sample.clone()
    buffer.extend(numbered(10, 100))

    assert (sample == before).all()
    sample["number"].zero_()
    assert buffer[:]["number"].min() == 100


@pytest.mark.parametrize(("batch_size", "ndim"), [((3, 8), 2), ((2, 3, 8), 3)])
def test_batches_of_several_dimensions_keep_their_time(batch_size: Any, ndim: int, storage: Any) -> None:
    def batch(first: int) -> TensorDict:
        time = torch.arange(first, first + 8).expand(batch_size)
        row = torch.arange(time.numel() // 8).reshape(*batch_size[:-1], 1).expand(batch_size)
        return TensorDict({"time": time, "row": row}, batch_size)

    rows = time = None
    buffer = TensorDictReplayBuffer(storage=storage(20 * batch(0).numel() // 8, ndim=ndim), batch_size=400)
    buffer.extend(batch(0))
    assert (buffer[:] == batch(0)).all()
    buffer.extend(batch(8))
    index = buffer.extend(batch(16))

    assert buffer.storage.shape[0] == 20
    assert len(buffer) == 20 * batch(0).numel() // 8
    assert index.shape == (batch(0).numel(), ndim)
    assert buffer[:].batch_size == (*batch_size[:-1], 20)
    sample = buffer.sample()
    time, rows = sample["time"], sample["row"]
    assert sample["index"].shape == (400, ndim)
    assert torch.equal(sample["index"][:, 0], time % 20)
    assert set(time.tolist()) == set(range(4, 24))
    assert set(rows.tolist()) == set(range(batch(0).numel() // 8))


def test_a_storage_takes_data_of_its_dimensions_only() -> None:
    buffer = ReplayBuffer(storage=LazyTensorStorage(100, ndim=2))
    with pytest.raises(SpecError, match="ndim=2 takes data with 2 leading dimensions"):
        buffer.extend(numbered(4))
    buffer.extend(TensorDict({"a": torch.zeros(3, 5)}, [3, 5]))
    with pytest.raises(SpecError, match="3 rows in a time step"):
        buffer.extend(TensorDict({"a": torch.zeros(4, 5)}, [4, 5]))
    assert buffer.write_count == 15


def test_lists_keep_any_objects_and_are_collated() -> None:
    buffer = ReplayBuffer(storage=ListStorage(4), batch_size=20, collate_fn=lambda items: items)
    buffer.extend(["a", "b", "c"])
    buffer.add("d")
    buffer.extend(["e"])
    assert set(buffer.sample()) == {"b", "c", "d", "e"}
    assert buffer[0] == "e"

    stacked = ReplayBuffer(batch_size=3)  # ListStorage(1000)
    stacked.extend(list(numbered(5)))
    assert stacked.sample().batch_size == (3,)
    numbers = ReplayBuffer(storage=ListStorage(), batch_size=3)
    numbers.extend(range(3000))
    assert numbers.sample().shape == (3,)
    assert len(numbers) == 3000


def test_rows_of_another_layout_change_nothing() -> None:
    buffer = ReplayBuffer(storage=LazyTensorStorage(10))
    buffer.extend(numbered(3))
    wrong = {
        "next': 'reward|reward": numbered(2).exclude(("next", "reward")),
        "int64|dtype": numbered(2).set("number", torch.zeros(2)),
        "shape": numbered(2).set("number", torch.zeros(2, 1, dtype=torch.int64)),
    }
    for text, data in wrong.items():
        with pytest.raises(SpecError, match=text):
            buffer.extend(data)
    with pytest.raises(SpecError, match="stores TensorDicts, found list"):
        buffer.extend([1, 2])
    assert buffer.write_count == 3
    assert (buffer[:] == numbered(3)).all()


def test_entries_that_come_later_are_zero_before(storage: Any) -> None:
    buffer = ReplayBuffer(storage=storage(10))
    buffer.extend(numbered(3))
    buffer.extend(numbered(3, 3).set("log_prob", torch.ones(3)))
    buffer.extend(numbered(2, 6))

    assert buffer[:]["log_prob"].tolist() == [0, 0, 0, 1, 1, 1, 0, 0]


def test_sampling_an_empty_buffer_is_an_error() -> None:
    buffer = ReplayBuffer(storage=LazyTensorStorage(10), batch_size=2)
    with pytest.raises(StateError, match="empty: extend it"):
        buffer.sample()
    assert buffer.next() is None
    assert list(buffer) == []
    buffer.extend(numbered(3))
    buffer.empty()
    assert len(buffer) == 0
    with pytest.raises(StateError, match="empty"):
        buffer.sample()
    buffer.extend(numbered(2, 50))
    assert set(buffer.sample(20)["number"].tolist()) == {50, 51}
    for size in (0, True, 2.0):
        with pytest.raises(SpecError, match="batch_size must be an int >= 1"):
            buffer.sample(size)  # type: ignore[arg-type]


def test_unknown_arguments_are_named() -> None:
    with pytest.raises(TypeError, match="did you mean 'sampler'"):
        ReplayBuffer(samplers=None)
    with pytest.raises(SpecError, match="max_size must be a whole number"):
        LazyTensorStorage(0)
    with pytest.raises(SpecError, match="needs batch_size="):
        ReplayBuffer().sample()


def test_the_generator_decides_what_is_sampled() -> None:
    def draws(seed: int) -> list[list[int]]:
        buffer = ReplayBuffer(
            storage=LazyTensorStorage(100), batch_size=5, generator=torch.Generator().manual_seed(seed)
        )
        buffer.extend(numbered(100))
        return [buffer.sample()["number"].tolist() for _ in range(3)]

    assert draws(0) == draws(0) != draws(1)


def test_functions_transform_samples_and_inverses_data() -> None:
    class Halve:
        def __call__(self, data: Any) -> Any:
            return data.set("number", data["number"] * 2)

        def inv(self, data: Any) -> Any:
            return data.clone(False).set("number", data["number"] // 2)

    buffer = ReplayBuffer(storage=LazyTensorStorage(10), batch_size=4, transform=Halve())
    buffer.append_transform(lambda data: data.set("more", data["number"] + 1))
    given = numbered(4) * 1
    buffer.extend(given)

    assert buffer.storage.take(torch.arange(4).numpy())["number"].tolist() == [0, 0, 1, 1]
    assert given["number"].tolist() == [0, 1, 2, 3]
    assert buffer[:]["number"].tolist() == [0, 0, 2, 2]
    sample = buffer.sample()
    assert torch.equal(sample["more"], sample["number"] + 1)


def test_an_inverted_transform_runs_before_writing() -> None:
    buffer = ReplayBuffer(storage=LazyTensorStorage(100), batch_size=4)
    buffer.append_transform(lambda data: data.reshape(-1), invert=True)
    buffer.extend(TensorDict({"a": torch.arange(12).view(3, 4)}, [3, 4]))

    assert len(buffer) == 12
    assert buffer[:]["a"].tolist() == list(range(12))


def test_text_is_kept_in_process_and_refused_elsewhere() -> None:
    data = numbered(3)
    data.set("text", NonTensorStack("a", "b", "c"))
    buffer = ReplayBuffer(storage=LazyTensorStorage(10), batch_size=2)
    buffer.extend(data)
    assert buffer[:]["text"] == ["a", "b", "c"]
    with pytest.raises(NotSupported, match="'text'"):
        ReplayBuffer(storage=LazyMemmapStorage(10)).extend(data)


def test_bfloat16_and_numbers_without_dimensions_are_kept(storage: Any) -> None:
    data = TensorDict({"a": torch.arange(4, dtype=torch.bfloat16), "b": torch.arange(4) > 1}, [4])
    buffer = ReplayBuffer(storage=storage(4))
    buffer.extend(data)
    assert (buffer[:] == data).all()
    assert buffer[:]["a"].dtype is torch.bfloat16


def test_rows_are_read_and_replaced_by_index() -> None:
    buffer = ReplayBuffer(storage=LazyTensorStorage(10))
    buffer.extend(numbered(6))
    assert buffer[2]["number"] == 2
    assert buffer[-1]["number"] == 5
    assert buffer[1:3]["number"].tolist() == [1, 2]
    assert buffer[torch.tensor([4, 0])]["number"].tolist() == [4, 0]
    buffer[1:3] = numbered(2, 70)
    buffer[5] = numbered(1, 90)[0]
    assert buffer[:]["number"].tolist() == [0, 70, 71, 3, 4, 90]


def test_buffers_are_data_sets_of_torch() -> None:
    buffer = ReplayBuffer(storage=LazyTensorStorage(100), batch_size=8)
    buffer.extend(numbered(20))
    loader = torch.utils.data.DataLoader(buffer.as_torch_dataset(), batch_size=None, collate_fn=lambda batch: batch)
    for _, batch in zip(range(3), loader, strict=False):
        assert batch.batch_size == (8,)


def test_the_largest_values_are_kept() -> None:
    buffer = TensorDictReplayBuffer(
        storage=LazyTensorStorage(4), writer=TensorDictMaxValueWriter(rank_key="value"), batch_size=10
    )
    index = buffer.extend(TensorDict({"value": torch.tensor([3.0, 9, 1, 7])}, [4]))
    assert index.tolist() == [0, 1, 2, 3]
    index = buffer.extend(TensorDict({"value": torch.tensor([0.0, 8, 2, 10])}, [4]))

    assert sorted(buffer[:]["value"].tolist()) == [7, 8, 9, 10]
    assert index.tolist()[0] == index.tolist()[2] == -1
    assert int(buffer.add(TensorDict({"value": torch.tensor(1.0)}))) == -1
    with pytest.raises(SpecError, match="no entry 'value' to rank by"):
        buffer.extend(TensorDict({"worth": torch.ones(2)}, [2]))
    with pytest.raises(SpecError, match="ranks single rows"):
        ReplayBuffer(storage=LazyTensorStorage(4, ndim=2), writer=TensorDictMaxValueWriter())


def test_a_tensor_storage_begins_with_rows() -> None:
    buffer = ReplayBuffer(storage=TensorStorage(numbered(5)), batch_size=3)
    assert len(buffer) == 5
    assert (buffer[:] == numbered(5)).all()


@pytest.mark.parametrize("lanes", [1, 3])
def test_flush_writes_the_steps_that_wait(lanes: int) -> None:
    """The last steps get the rewards there are, and no step is stored twice or lost."""
    storage = LazyTensorStorage(100, ndim=1 if lanes == 1 else 2)
    buffer = ReplayBuffer(storage=storage, transform=MultiStepTransform(3, 0.5), batch_size=4)
    lead = [5] if lanes == 1 else [lanes, 5]
    assert buffer.flush() == 0
    step = torch.arange(5.0).expand(lead).clone()
    done = torch.zeros(*lead, 1, dtype=torch.bool)
    following = {"obs": step + 1, "reward": torch.ones(*lead, 1), "done": done}
    buffer.extend(TensorDict({"obs": step, "next": TensorDict(following, lead)}, lead))
    assert len(buffer) == 3 * lanes
    assert buffer.flush() == 2 * lanes
    assert buffer.flush() == 0
    data = buffer[:].reshape(-1, 5)
    assert torch.equal(data["obs"], torch.arange(5.0).expand(lanes, 5))
    assert torch.equal(data["next", "obs"], torch.tensor([3.0, 4.0, 5.0, 5.0, 5.0]).expand(lanes, 5))
    rewards = torch.tensor([1.75, 1.75, 1.75, 1.5, 1.0])
    assert torch.equal(data["next", "reward"][..., 0], rewards.expand(lanes, 5))
