"""The law of samplers: uniform, without replacement, by priorities."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from tensordict import TensorDict

from steppe.errors import SpecError, StateError
from steppe_replay import (
    LazyTensorStorage,
    PrioritizedSampler,
    PriorityTree,
    ReplayBuffer,
    SamplerWithoutReplacement,
    TensorDictPrioritizedReplayBuffer,
)
from tests.replay.chi_square import follows
from tests.replay.data import numbered


def prioritized(n: int, beta: float, batch_size: int) -> TensorDictPrioritizedReplayBuffer:
    storage = LazyTensorStorage(n)
    return TensorDictPrioritizedReplayBuffer(alpha=1.0, beta=beta, eps=0.0, storage=storage, batch_size=batch_size)


@pytest.mark.parametrize("written", [60, 100, 130])
def test_rows_are_drawn_with_equal_probability(written: int) -> None:
    buffer = ReplayBuffer(storage=LazyTensorStorage(100), batch_size=1000)
    for first in range(0, written, 10):
        buffer.extend(numbered(10, first))
    rows = torch.cat([buffer.sample()["number"] for _ in range(20)]).numpy()

    kept = range(max(0, written - 100), written)
    assert follows(np.bincount(rows, minlength=written)[kept.start :], np.ones(len(kept)))


def test_rows_being_written_are_left_out() -> None:
    """A writer that has stopped costs its rows only; the others keep equal probabilities."""
    buffer = ReplayBuffer(storage=LazyTensorStorage(40), batch_size=1000)
    buffer.extend(numbered(40))
    ring = buffer.storage.ring
    assert ring is not None
    start, n, _ = ring.reserve(7)
    rows = torch.cat([buffer.sample()["number"] for _ in range(10)]).numpy()
    counts = np.bincount(rows, minlength=40)

    assert (start, n) == (40, 7)
    assert counts[:7].sum() == 0
    assert follows(counts[7:], np.ones(33))
    assert len(buffer) == 33
    index = buffer.extend(numbered(10, 100))
    assert index.tolist() == list(range(7, 17)), "nobody else writes the rows of the stopped writer"
    ring.finish(start, n)
    assert len(buffer) == 40


def test_an_epoch_has_each_row_once() -> None:
    buffer = ReplayBuffer(storage=LazyTensorStorage(10), sampler=SamplerWithoutReplacement(), batch_size=4)
    buffer.extend(numbered(10))
    epochs = [[batch["number"] for batch in buffer] for _ in range(2)]

    assert [[len(batch) for batch in epoch] for epoch in epochs] == [[4, 4, 2]] * 2
    assert all(sorted(torch.cat(epoch).tolist()) == list(range(10)) for epoch in epochs)
    assert torch.cat(epochs[0]).tolist() != torch.cat(epochs[1]).tolist()


def test_orders_of_epochs_are_equally_likely() -> None:
    buffer = ReplayBuffer(storage=LazyTensorStorage(3), sampler=SamplerWithoutReplacement(), batch_size=3)
    buffer.extend(numbered(3))
    orders = [tuple(buffer.sample()["number"].tolist()) for _ in range(3000)]
    counts = np.array([orders.count(order) for order in set(orders)])

    assert len(counts) == 6
    assert follows(counts, np.ones(6))


def test_the_rest_of_an_epoch_is_dropped_on_request() -> None:
    sampler = SamplerWithoutReplacement(drop_last=True, shuffle=False)
    buffer = ReplayBuffer(storage=LazyTensorStorage(10), sampler=sampler, batch_size=4)
    buffer.extend(numbered(10))
    assert [batch["number"].tolist() for batch in buffer] == [[0, 1, 2, 3], [4, 5, 6, 7]]


@pytest.mark.parametrize("drop_last", [False, True])
def test_more_rows_than_there_are_cannot_be_drawn_once(drop_last: bool) -> None:
    sampler = SamplerWithoutReplacement(drop_last=drop_last)
    buffer = ReplayBuffer(storage=LazyTensorStorage(20), sampler=sampler, batch_size=5)
    buffer.extend(numbered(10))
    with pytest.raises(StateError, match=r"a sample of 11 without replacement needs as many rows, and there are 10"):
        buffer.sample(11)
    assert sorted(torch.cat([buffer.sample()["number"] for _ in range(2)]).tolist()) == list(range(10))


@pytest.mark.parametrize("n", [3, 16, 700, 20_000, 300_000])
def test_the_tree_draws_in_proportion_to_weights(n: int) -> None:
    generator = np.random.default_rng(n)
    weights = generator.random(n) ** 4
    weights[generator.random(n) < 0.3] = 0.0
    weights[n // 2] = 1.0
    tree = PriorityTree(n)
    tree.set(np.arange(n), weights)
    tree.set(np.array([0, n - 1]), np.array([0.5, 0.25]))
    weights[[0, n - 1]] = 0.5, 0.25
    rows, drawn = tree.draw(generator.random(60_000))

    assert tree.total == pytest.approx(weights.sum(), rel=1e-12)
    assert tree.least == weights[weights > 0].min()
    assert np.array_equal(drawn, weights[rows])
    assert (drawn > 0).all()
    parts = np.array_split(np.arange(n), min(n, 40))
    counts = np.array([np.isin(rows, part).sum() for part in parts])
    assert follows(counts, np.array([weights[part].sum() for part in parts]))


def test_the_ends_of_the_cumulated_weights_have_rows() -> None:
    tree = PriorityTree(5000)
    tree.set(np.array([7, 4000]), np.array([1e-9, 1e9]))
    rows, _ = tree.draw(np.array([0.0, 0.5, np.nextafter(1.0, 0.0)]))
    assert rows.tolist() == [7, 4000, 4000]


def test_each_number_draws_the_row_at_its_place() -> None:
    generator = np.random.default_rng(3)
    weights, points = generator.integers(0, 9, 90_000).astype(float), generator.random(500)
    tree = PriorityTree(len(weights))
    tree.set(np.arange(len(weights)), weights)
    expected = weights.cumsum().searchsorted(points * weights.sum(), "right")
    assert tree.draw(points)[0].tolist() == expected.tolist()


def test_importance_weights_match_numpy() -> None:
    sampler = PrioritizedSampler(500, alpha=0.7, beta=0.9, eps=1e-3, dtype=torch.float64)
    buffer = ReplayBuffer(storage=LazyTensorStorage(500), sampler=sampler, batch_size=20_000)
    buffer.extend(numbered(300))
    priorities = np.random.default_rng(0).random(300) * 5
    buffer.update_priority(torch.arange(300), torch.from_numpy(priorities))
    sample, info = buffer.sample(return_info=True)

    p = (priorities + 1e-3) ** 0.7
    expected = ((p / p.sum()) / (p.min() / p.sum())) ** -0.9
    rows = sample["number"].numpy()
    assert np.abs(info["priority_weight"].numpy() - expected[rows]).max() < 1e-6
    assert follows(np.bincount(rows, minlength=300), p)


def test_new_rows_have_the_largest_priority() -> None:
    buffer = prioritized(6, beta=0.0, batch_size=3000)
    buffer.extend(numbered(4))
    buffer.update_priority(torch.arange(4), torch.tensor([1.0, 2.0, 5.0, 2.0]))
    buffer.extend(numbered(3, 4))  # overwrites the first row
    counts = np.bincount(buffer.sample()["index"].numpy(), minlength=6)
    assert follows(counts, np.array([5.0, 2.0, 5.0, 2.0, 5.0, 5.0]))


def test_alpha_can_change_while_it_is_used() -> None:
    sampler = PrioritizedSampler(3, 1.0, 0.0, eps=0.0)
    buffer = ReplayBuffer(storage=LazyTensorStorage(3), sampler=sampler, batch_size=6000)
    buffer.extend(numbered(3))
    buffer.update_priority(torch.arange(3), torch.tensor([1.0, 4.0, 9.0]))
    buffer.sampler.alpha = 0.5
    assert follows(np.bincount(buffer.sample()["number"].numpy()), np.array([1.0, 2.0, 3.0]))


def test_wrong_priorities_change_nothing() -> None:
    buffer = prioritized(4, beta=1.0, batch_size=50)
    buffer.extend(numbered(4))
    buffer.update_priority(torch.arange(4), torch.tensor([0.0, 0.0, 3.0, 0.0]))
    wrong: list[tuple[Any, str]] = [
        (torch.tensor([1.0, -2.0]), "found -2"),
        (torch.tensor([1.0, torch.nan]), "found nan"),
        (torch.ones(3), "2 rows, and priorities of shape"),
    ]
    for priority, text in wrong:
        with pytest.raises(SpecError, match=text):
            buffer.update_priority(torch.tensor([0, 1]), priority)
    with pytest.raises(StateError, match="row 4 does not exist"):
        buffer.update_priority(torch.tensor([0, 4]), 1.0)
    assert set(buffer.sample()["number"].tolist()) == {2}
    buffer.update_priority(2, 0.0)
    with pytest.raises(StateError, match="priority 0"):
        buffer.sample()
    with pytest.raises(SpecError, match="alpha must be a number >= 0"):
        PrioritizedSampler(4, -1.0, 1.0)


def test_rows_that_were_not_written_have_no_priority() -> None:
    """A row without data is never drawn. Data that is written there later has the priority of new rows."""
    buffer = prioritized(10, beta=0.0, batch_size=600)
    buffer.extend(numbered(6))
    with pytest.raises(StateError, match="row 8 does not exist; the buffer has 6 rows"):
        buffer.update_priority(torch.tensor([0, 8]), 50.0)
    counts = buffer.sample()["number"].bincount()
    assert len(counts) == 6
    assert counts.min() > 50


def test_replaced_rows_lose_their_priorities() -> None:
    buffer = prioritized(3, beta=0.0, batch_size=4000)
    buffer.extend(TensorDict({"a": torch.arange(3)}, [3]))
    buffer.update_priority(torch.arange(3), torch.tensor([1.0, 1.0, 4.0]))
    buffer[0] = TensorDict({"a": torch.tensor(7)})
    counts = np.bincount(buffer.sample()["index"].numpy())
    assert follows(counts, np.array([4.0, 1.0, 4.0]))


def test_the_smallest_weight_follows_every_change() -> None:
    """Also of rows that stand twice in a change, of several rows with the smallest weight, and of zeros."""
    generator = np.random.default_rng(5)
    tree, weights = PriorityTree(50), np.zeros(50)
    assert tree.least == np.inf
    for _ in range(2000):
        index = generator.integers(0, 50, int(generator.integers(1, 6)))
        new = generator.choice([0.0, 0.25, 0.5, 1.0, 3.0], len(index))
        new = new if generator.random() < 0.8 else 0.5
        tree.set(index, new)
        weights[index] = new
        left = weights[weights > 0]
        assert tree.least == (left.min() if len(left) else np.inf)
        assert tree.total == pytest.approx(weights.sum())


@pytest.mark.parametrize("index", [(4, 1), (0, 2), (-1, 0)])
def test_priorities_of_rows_outside_a_grid_are_refused(index: tuple[int, int]) -> None:
    storage = LazyTensorStorage(8, ndim=2)
    buffer = TensorDictPrioritizedReplayBuffer(alpha=1.0, beta=0.5, storage=storage, batch_size=4)
    rows = buffer.extend(torch.stack([numbered(4), numbered(4, 10)]))
    with pytest.raises(StateError, match=rf"row \[{index[0]}, {index[1]}\] does not exist.*shape \(4, 2\)"):
        buffer.update_priority(torch.cat([rows, torch.tensor([index])]), torch.ones(9))
