"""Samples that threads make ahead."""

from __future__ import annotations

import pickle
import threading

import torch

from steppe_replay import LazyTensorStorage, ReplayBuffer
from tests.replay.data import numbered


def test_prefetched_samples_come_from_threads() -> None:
    buffer = ReplayBuffer(storage=LazyTensorStorage(100), batch_size=8, prefetch=3)
    buffer.extend(numbered(100))
    threads = set()
    buffer.append_transform(lambda data: threads.add(threading.current_thread().name) or data)
    numbers = torch.stack([buffer.sample()["number"] for _ in range(20)])
    buffer.shutdown()

    assert all(name.startswith("steppe-replay") for name in threads)
    assert len(numbers.unique()) > 50
    assert buffer.sample().batch_size == (8,)


def test_a_pickled_buffer_makes_samples_of_its_own() -> None:
    buffer = ReplayBuffer(storage=LazyTensorStorage(100, shared=True), batch_size=4, prefetch=2)
    buffer.extend(numbered(10))
    buffer.sample()
    other = pickle.loads(pickle.dumps(buffer))
    buffer.empty()
    buffer.extend(numbered(10, 50))

    assert set(torch.cat([other.sample()["number"] for _ in range(20)]).tolist()) <= set(range(50, 60))
    buffer.shutdown()
    other.shutdown()


def test_an_emptied_buffer_has_no_samples_of_before() -> None:
    buffer = ReplayBuffer(storage=LazyTensorStorage(100), batch_size=4, prefetch=2)
    buffer.extend(numbered(10))
    buffer.sample()
    buffer.empty()
    buffer.extend(numbered(10, 50))
    assert buffer.sample()["number"].min() >= 50
    buffer.shutdown()
