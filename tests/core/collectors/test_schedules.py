"""When workers begin a batch, and which batches are joined."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest

from steppe import (
    EnvBase,
    MultiaSyncDataCollector,
    MultiSyncDataCollector,
    SerialEnv,
)
from steppe.errors import ArgumentError
from steppe_testing import DynamicSpecEnv, TextCountingEnv
from tests.core.collectors.worker_policies import (
    Waiting,
    counting,
    interrupt_waiting,
    scaled,
)


def pair() -> EnvBase:
    return SerialEnv(2, counting)


@pytest.mark.parametrize(
    ("one", "cat_results", "shape"),
    [
        (counting, "stack", (2, 8)),
        (counting, 0, (16,)),
        (counting, -1, (16,)),
        (pair, "stack", (2, 2, 4)),
        (pair, 0, (4, 4)),
        (pair, -1, (2, 8)),
    ],
)
def test_batches_of_all_workers_are_put_together(one: Any, cat_results: Any, shape: tuple[int, ...]) -> None:
    with MultiSyncDataCollector([one] * 2, frames_per_batch=16, cat_results=cat_results, seed=0) as collector:
        batch = next(collector)
    assert batch.batch_size == shape
    assert batch.names[-1] == "time"
    ids = batch["collector", "traj_ids"]
    parts = ids.unbind(0) if cat_results == "stack" else ids.chunk(2, cat_results)
    assert [part.remainder(2).unique().tolist() for part in parts] == [[0], [1]]


@pytest.mark.parametrize("kind", [MultiSyncDataCollector, MultiaSyncDataCollector])
def test_random_frames_come_first_and_then_the_policy_acts(kind: Any) -> None:
    policy = scaled()
    policy.module.weight.data.fill_(1)
    frames = 16 if kind is MultiSyncDataCollector else 8
    with kind([pair] * 2, policy, frames_per_batch=frames, init_random_frames=32) as collector:
        batches = [next(collector) for _ in range(128 // frames)]
        state = collector.state_dict()
    acted = [batch["weight"].eq(1).all() if "weight" in batch.keys() else None for batch in batches]
    if kind is MultiSyncDataCollector:
        assert acted == [None] * 2 + [True] * 6
        with kind([pair] * 2, policy, frames_per_batch=frames, init_random_frames=32) as collector:
            collector.load_state_dict(state)
            assert next(collector)["weight"].eq(1).all(), "they are not taken again"
    else:
        assert acted == [None] * 4 + [True] * 12, "four batches, whichever workers are the first"


def test_total_frames_end_the_loop_in_whole_batches() -> None:
    """Numbers of frames are rounded up for the workers, with a warning."""
    with pytest.warns(UserWarning, match="rounded up to 20"):
        collector = MultiSyncDataCollector([pair] * 2, frames_per_batch=17, total_frames=60)
    with collector:
        assert [batch.numel() for batch in collector] == [20, 20, 20]
        assert collector.stats()["frames"] == 60


def test_unequal_shares_are_put_together_along_time() -> None:
    with MultiSyncDataCollector([counting] * 2, frames_per_batch=[4, 8], cat_results=-1) as collector:
        assert next(collector)["collector", "traj_ids"].remainder(2).tolist() == [0] * 4 + [1] * 8
    with pytest.raises(ArgumentError, match="take -1"):
        MultiSyncDataCollector([counting] * 2, frames_per_batch=[4, 8])


class WaitingInWords(Waiting, TextCountingEnv):
    """The same with text, for which batches have no fixed place."""


@pytest.mark.parametrize(("rows", "cat_results"), [(0, "stack"), (0, -1), (2, "stack"), (2, 0), (2, -1)])
def test_interrupted_batches_of_text_are_put_together(
    rows: int, cat_results: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "go"

    def maker(make: Any) -> Any:
        return (lambda: SerialEnv(rows, make)) if rows else make

    makers = [maker(lambda: TextCountingEnv(100)), maker(lambda: WaitingInWords(str(file)))]
    n = max(rows, 1)
    with MultiSyncDataCollector(
        makers, frames_per_batch=20 * n, preemptive_threshold=0.5, cat_results=cat_results
    ) as collector:
        interrupt = collector.backend.interrupt
        monkeypatch.setattr(collector.backend, "interrupt", lambda: interrupt_waiting(interrupt, file))
        batch = next(collector)
        assert collector.stats()["frames"] == 14 * n
    if cat_results == -1:
        assert batch.shape[-1] == 14, "what was not collected is left out"
        batch = batch[..., 10:].reshape(n, 4)
    else:
        batch = batch.reshape(2, n, 10)[1]
        assert (batch["collector", "traj_ids"][:, 4:] == -1).all()
        assert (batch["next", "observation"][:, 4:] == 0).all()
        assert [frame["next", "text"] for frame in batch[0, 4:]] == [None] * 6
    assert [frame["next", "text"] for frame in batch[0, :4]] == ["1", "2", "3", "4"]


@pytest.mark.parametrize("cat_results", ["stack", 0, -1])
def test_growing_data_of_workers_is_put_together(cat_results: Any) -> None:
    makers = [partial(DynamicSpecEnv, 3), partial(DynamicSpecEnv, 4)]
    with MultiSyncDataCollector(makers, frames_per_batch=12, cat_results=cat_results) as collector:
        batch = next(collector)
    assert batch.names[-1] == "time"
    sizes = [frame["observation"].shape[1] for frame in batch.reshape(-1).unbind(0)]
    assert sizes == [1, 2, 3, 1, 2, 3, 1, 2, 3, 4, 1, 2]
