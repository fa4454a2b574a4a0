"""A worker of a collector: calls, weights between batches, preemption, errors."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any

import pytest

from steppe import (
    MultiaSyncDataCollector,
    MultiSyncDataCollector,
    aSyncDataCollector,
)
from steppe.errors import WorkerError
from steppe_testing import CountingEnv
from tests.core.collectors.worker_policies import (
    Breaking,
    Waiting,
    counting,
    interrupt_waiting,
    scaled,
    several_batches,
)
from tests.limits import CHILD


def test_update_at_each_batch_sends_weights() -> None:
    policy = scaled()
    with MultiSyncDataCollector([counting], policy, frames_per_batch=4, update_at_each_batch=True) as collector:
        for number in range(3):
            policy.module.weight.data.fill_(number)
            batch = next(collector)
            assert batch["weight"].eq(number).all()
            assert batch["collector", "policy_version"].eq(number + 1).all(), "the first step's frames too"


@pytest.mark.parametrize("random_frames", [0, 8])
def test_frames_of_a_batch_name_the_update_that_made_them(random_frames: int) -> None:
    policy = scaled()
    with aSyncDataCollector(
        counting, policy, frames_per_batch=4, update_at_each_batch=True, init_random_frames=random_frames
    ) as collector:
        batches = []
        for number in range(6):
            policy.module.weight.data.fill_(10 * number)  # the weights of update ``number``, which comes with a batch
            batches.append(next(collector))
    for number, batch in enumerate(batches):
        assert batch["collector", "policy_version"].eq(number).all()
        if 4 * number >= random_frames:
            assert batch["weight"].eq(10 * max(number - 1, 0)).all()


def test_workers_get_arguments_and_callbacks_run_here() -> None:
    """Workers get arguments about collecting; callbacks run in this process."""
    seen: list[Any] = []
    pid = os.getpid()

    def processed(batch: Any) -> Any:
        assert os.getpid() == pid
        return batch.exclude("observation")

    with MultiSyncDataCollector(
        [counting] * 2,
        frames_per_batch=16,
        max_frames_per_traj=2,
        split_trajs=True,
        postproc=processed,
        post_collect_hook=seen.append,
    ) as collector:
        batch = next(collector)
    assert batch.batch_size == (8, 2)
    assert batch["collector", "mask"].all()
    assert "observation" not in batch.keys()
    assert len(seen) == 1


def test_preemption_stops_workers_that_are_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With preemptive_threshold, slow workers deliver part of a batch and go on."""
    file = tmp_path / "go"
    makers = [lambda: CountingEnv(100), lambda: Waiting(str(file))]
    with MultiSyncDataCollector(makers, frames_per_batch=100, preemptive_threshold=0.5) as collector:
        interrupt = collector.backend.interrupt

        monkeypatch.setattr(collector.backend, "interrupt", lambda: interrupt_waiting(interrupt, file))

        batch = next(collector)

        mask, ids = batch["collector", "mask"], batch["collector", "traj_ids"]
        assert mask[0].all()
        assert mask[1].nonzero().flatten().tolist() == [0, 1, 2, 3], "the step that was under way is the last one"
        assert (ids[1, 4:] == -1).all()
        assert (batch["next", "observation"][1, 4:] == 0).all()
        assert collector.stats()["frames"] == 54
        follower = next(collector)
        assert float(follower["observation"][1, 0]) == 4, "the next batch goes on where this one stopped"


def broken_policy(tensordict: Any) -> Any:
    raise ValueError("broken in policy")


@pytest.mark.parametrize("kind", [MultiSyncDataCollector, MultiaSyncDataCollector])
@pytest.mark.parametrize("where", ["factory", "reset", "step", "policy"])
def test_a_worker_error_arrives_with_its_traceback(kind: Any, where: str) -> None:
    makers = [counting, lambda: Breaking(where)]
    with pytest.raises(WorkerError, match=f"broken in {where}") as caught:
        several_batches(lambda: kind(makers, broken_policy if where == "policy" else None, frames_per_batch=16))
    assert "ValueError" in caught.value.remote_traceback
    assert caught.value.worker is not None


def test_another_thread_may_write_weights_while_one_collects() -> None:
    collected = threading.Event()
    with MultiaSyncDataCollector([counting] * 2, scaled(), frames_per_batch=8) as collector:

        def write() -> None:
            while not collected.is_set():
                collector.update_policy_weights_()

        writer = threading.Thread(target=write)
        writer.start()
        try:
            versions = [int(next(collector)["collector", "policy_version"].max()) for _ in range(30)]
        finally:
            collected.set()
            writer.join(CHILD)
        assert versions[-1] > versions[0]


def test_an_error_of_a_call_leaves_the_workers_at_work() -> None:
    with MultiSyncDataCollector([counting] * 2, scaled(), frames_per_batch=8) as collector:
        assert collector.call_policy("get_submodule", "module")
        with pytest.raises(WorkerError, match="no_such_method"):
            collector.call_policy("no_such_method")
        assert next(collector).numel() == 8
