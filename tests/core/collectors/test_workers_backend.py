"""Collectors whose batches are made by worker processes."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from tensordict import TensorDict
from tensordict.nn import TensorDictModule
from torch import nn

from steppe import (
    EnvBase,
    MultiaSyncDataCollector,
    MultiSyncDataCollector,
    SerialEnv,
    StepCounter,
    SyncDataCollector,
    TransformedEnv,
    aSyncDataCollector,
)
from steppe.errors import ArgumentError, PolicyError, SpecError, WorkerError, WorkerTimeout
from steppe_testing import CountingEnv, TextCountingEnv, assert_equal_data
from tests.core.collectors.buffers import Buffer
from tests.core.collectors.worker_policies import (
    Breaking,
    all_gone,
    counting,
    scaled,
    several_batches,
)
from tests.limits import ANSWER, CHILD

CART = "gym:CartPole-v1"


KEYS = {
    *("observation", "action", "done", "terminated", "truncated"),
    *(("next", key) for key in ("observation", "reward", "done", "terminated", "truncated")),
    *(("collector", key) for key in ("traj_ids", "policy_version")),
}


def pair() -> EnvBase:
    return SerialEnv(2, counting)


@pytest.mark.parametrize(("one", "shape"), [(counting, (8,)), (pair, (2, 4))])
@pytest.mark.parametrize("kind", [SyncDataCollector, MultiaSyncDataCollector, aSyncDataCollector])
def test_a_workers_batch_has_one_row_per_environment(kind: Any, one: Any, shape: Any) -> None:
    """A batch of a single environment is one row, and one of a batch has several."""
    makers = [one] * 2 if kind is MultiaSyncDataCollector else one
    with kind(makers, frames_per_batch=8) as collector:
        batch = next(collector)
    assert batch.batch_size == shape
    assert batch.names[-1] == "time"


def test_workers_give_the_data_of_a_collector_in_this_process() -> None:
    for policy in (None, nn.Linear(4, 2)):
        wrapped = None if policy is None else TensorDictModule(Greedy(policy), ["observation"], ["action"])
        here = SyncDataCollector(CART, wrapped, frames_per_batch=40, seed=3)
        several = MultiSyncDataCollector([CART], wrapped, frames_per_batch=40, seed=3)
        alone = aSyncDataCollector(CART, wrapped, frames_per_batch=40, seed=3)
        with here, several, alone:
            for _ in range(3):
                expected = next(here)
                assert set(expected.keys(True, True)) == KEYS
                assert_equal_data(next(several)[0], expected)
                assert_equal_data(next(alone), expected)


class Greedy(nn.Module):
    """One-hot actions."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def forward(self, observation: torch.Tensor) -> torch.Tensor:
        return nn.functional.one_hot(self.net(observation).argmax(-1), 2)


def test_each_worker_takes_the_next_seed_of_the_chain() -> None:
    def batches(seed: int) -> list[Any]:
        with MultiSyncDataCollector([CART] * 2, frames_per_batch=20) as collector:
            following = collector.set_seed(seed)
            return [following, next(collector)]

    first, second, other = batches(1), batches(1), batches(2)
    assert first[0] == second[0] != other[0]
    assert_equal_data(first[1], second[1])
    assert not torch.equal(first[1]["observation"][0], first[1]["observation"][1])
    assert not torch.equal(first[1]["observation"], other[1]["observation"])


@pytest.mark.parametrize("kind", [MultiSyncDataCollector, MultiaSyncDataCollector])
def test_a_batch_says_which_weights_made_it(kind: Any) -> None:
    policy = scaled()
    with kind([pair] * 2, policy, frames_per_batch=16) as collector:
        seen = []
        for number in range(1, 6):
            batch = next(collector)
            version = batch["collector", "policy_version"]
            assert torch.equal(batch["weight"], version.float()), "the weights are those of the version"
            seen.append(int(version.max()))
            assert collector.policy_version == number - 1
            policy.module.weight.data.fill_(number)
            collector.update_policy_weights_()
        if kind is MultiSyncDataCollector:
            assert seen == [0, 1, 2, 3, 4]
        else:
            # One worker may be slow to begin, and its old batch come last; whoever goes on has newer weights.
            assert max(seen) >= 2, "a worker is a batch behind, not more"


def test_weights_come_from_modules_dicts_and_tensordicts() -> None:
    policy = scaled()
    with MultiSyncDataCollector([counting], policy_factory=scaled, frames_per_batch=4) as collector:
        assert next(collector)["weight"].eq(0).all()
        for number, given in enumerate((policy, policy.state_dict(), TensorDict.from_module(policy).detach()), 1):
            policy.module.weight.data.fill_(number)
            collector.update_policy_weights_(given if number != 2 else policy.state_dict())
            assert next(collector)["weight"].eq(number).all()
        with pytest.raises(PolicyError, match="policy_factory"):
            collector.update_policy_weights_()
        with pytest.raises(PolicyError, match="fit"):
            collector.update_policy_weights_({"other": torch.zeros(3)})
        assert next(collector)["weight"].eq(3).all()


def test_batches_go_to_a_replay_buffer() -> None:
    buffer = Buffer()
    with MultiaSyncDataCollector(
        [counting] * 2, frames_per_batch=8, total_frames=24, replay_buffer=buffer
    ) as collector:
        assert list(collector) == [None] * 3
    assert [data.batch_size for data in buffer.extended] == [(8,)] * 3


def test_data_without_a_fixed_place_travels_in_messages() -> None:
    with (
        MultiSyncDataCollector([partial(TextCountingEnv, 3)] * 2, frames_per_batch=8, seed=0) as collector,
        SyncDataCollector(TextCountingEnv(3), frames_per_batch=4, seed=0) as alone,
    ):
        for _ in range(2):
            batch, expected = next(collector), next(alone)
            assert batch.batch_size == (2, 4)
            assert batch[0]["text"] == expected["text"]
            assert batch["collector", "traj_ids"].remainder(2).tolist() == [[0] * 4, [1] * 4]


def test_a_batch_that_is_not_kept_may_be_written_over() -> None:
    with MultiSyncDataCollector([counting] * 2, frames_per_batch=8, return_same_td=True) as collector:
        first, second = next(collector), next(collector)
        assert first["observation"].data_ptr() == second["observation"].data_ptr()
    with MultiSyncDataCollector([counting] * 2, frames_per_batch=8) as collector:
        first = next(collector)
        kept = first.clone()
        next(collector)
        assert_equal_data(first, kept)


class Interruptor:
    def __init__(self, after: int) -> None:
        self.after, self.asked = after, 0

    def collection_stopped(self) -> bool:
        self.asked += 1
        return self.asked % self.after == 0


@pytest.mark.parametrize("env", [lambda: CountingEnv(100), pair, lambda: CART])
def test_an_interruptor_ends_a_batch_in_this_process(env: Any) -> None:
    made = env()
    with SyncDataCollector(made, frames_per_batch=20, interruptor=Interruptor(4), seed=0) as collector:
        batch, follower = next(collector), next(collector)
    mask = batch["collector", "mask"]
    assert mask.reshape(-1, mask.shape[-1]).sum(-1).unique().tolist() == [4]
    assert (batch["collector", "traj_ids"][~mask] == -1).all()
    assert torch.equal(follower["observation"][..., 0, :], batch["next", "observation"][..., 3, :])


@pytest.mark.parametrize("kind", [MultiSyncDataCollector, MultiaSyncDataCollector])
def test_a_worker_that_is_killed_is_noticed(kind: Any) -> None:
    with pytest.raises(WorkerError, match=r"Worker 1 .* ended unexpectedly"):
        several_batches(lambda: kind([counting, lambda: Breaking("kill")], frames_per_batch=16))


def test_a_worker_that_is_killed_between_batches_is_noticed() -> None:
    with MultiSyncDataCollector([counting] * 2, frames_per_batch=8) as collector:
        next(collector)
        os.kill(collector.backend.pool.pids[0], signal.SIGKILL)
        with pytest.raises(WorkerError, match=r"Worker 0 .* ended unexpectedly"):
            next(collector)


def test_a_worker_that_hangs_exceeds_batch_timeout() -> None:
    with MultiSyncDataCollector(
        [counting, lambda: Breaking("hang")], frames_per_batch=16, batch_timeout=ANSWER
    ) as collector:
        with pytest.raises(WorkerTimeout, match="Worker 1 did not finish a batch"):
            next(collector)
        pids = collector.backend.pool.pids
    assert all_gone(pids)


def test_garbage_collection_ends_the_workers() -> None:
    collector = MultiSyncDataCollector([counting] * 2, frames_per_batch=8)
    next(collector)
    pids = collector.backend.pool.pids
    del collector
    gc.collect()
    assert all_gone(pids)


@pytest.mark.parametrize(
    ("arguments", "error", "said"),
    [
        ({"create_env_fn": counting}, ArgumentError, "num_workers="),
        ({"create_env_fn": []}, ArgumentError, "empty list"),
        ({"frames_per_batch": [1, 2, 3]}, ArgumentError, "lists 3 numbers for 2 workers"),
        ({"frames_per_batch": 0}, ArgumentError, "whole number >= 1"),
        ({"cat_results": 1}, ArgumentError, "'stack', 0 or -1"),
        ({"preemptive_threshold": 1.5}, ArgumentError, "between 0 and 1"),
        ({"env_device": ["cpu"] * 3}, ArgumentError, "env_device lists 3 values for 2 workers"),
        ({"frames_per_bach": 3}, TypeError, "frames_per_batch"),
        ({"num_workers": 3}, ArgumentError, "lists 2"),
    ],
)
def test_wrong_arguments_are_refused_before_a_worker_starts(arguments: Any, error: Any, said: str) -> None:
    with pytest.raises(error, match=said):
        MultiSyncDataCollector(**{"create_env_fn": [counting] * 2, **arguments})


def test_environments_of_different_batch_sizes_are_refused() -> None:
    with pytest.raises(SpecError, match="batch sizes"):
        MultiSyncDataCollector([counting, pair])


def test_another_collector_continues_from_a_loaded_state() -> None:
    policy = scaled()
    with MultiSyncDataCollector([counting] * 2, policy, frames_per_batch=8) as collector:
        policy.module.weight.data.fill_(5)
        collector.update_policy_weights_()
        last = int(next(collector)["collector", "traj_ids"].max())
        state = collector.state_dict()
    with MultiSyncDataCollector([counting] * 2, scaled(), frames_per_batch=8) as other:
        other.load_state_dict(state)
        batch = next(other)
        assert batch["weight"].eq(5).all()
        assert int(batch["collector", "traj_ids"].min()) > last - 2
        assert other.stats()["frames"] == 16
        with pytest.raises(SpecError, match="state of 2 workers"):
            other.load_state_dict({"worker0": {}})


def test_reset_starts_new_episodes() -> None:
    def make() -> EnvBase:
        return TransformedEnv(CountingEnv(100), StepCounter())

    with MultiSyncDataCollector([make] * 2, frames_per_batch=8) as collector:
        next(collector)
        collector.reset()
        assert next(collector)["step_count"][:, 0].eq(0).all()


@pytest.mark.programs
@pytest.mark.parametrize("method", ["spawn", "fork"])
def test_workers_start_by_other_methods(method: str, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "from steppe import MultiSyncDataCollector\n"
        "from steppe_testing import CountingEnv\n"
        "if __name__ == '__main__':\n"
        f"    with MultiSyncDataCollector([CountingEnv] * 2, frames_per_batch=8, start_method={method!r}) as c:\n"
        "        print(tuple(next(c).batch_size))\n"
    )
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=CHILD)
    assert done.stdout.strip() == "(2, 4)", done.stderr
