"""Metadata of a batch: trajectory numbers, policy versions, marks."""

from __future__ import annotations

import pytest
import torch

from steppe import (
    Collector,
    SerialEnv,
    StepCounter,
    TransformedEnv,
)
from steppe.errors import SpecError
from steppe_testing import (
    CountingEnv,
    IncrementingEnv,
    NestedCountingEnv,
    TextCountingEnv,
)


def test_frames_are_numbered_by_trajectory_and_policy_version() -> None:
    with Collector(IncrementingEnv(2, batch_size=(2,)), frames_per_batch=6) as collector:
        first = next(collector)["collector"]
        collector.update_policy_weights_()
        second = next(collector)["collector"]
    assert first["traj_ids"].tolist() == [[0, 0, 2], [1, 1, 3]]
    assert second["traj_ids"].tolist() == [[2, 4, 4], [3, 5, 5]]
    assert first["traj_ids"].dtype == first["policy_version"].dtype == torch.int64
    assert first["policy_version"].tolist() == [[0, 0, 0]] * 2
    assert second["policy_version"].tolist() == [[1, 1, 1]] * 2


def test_trajectory_ids_are_unique_if_rows_end_together() -> None:
    """Trajectories that begin in the same step are numbered by row."""
    env = SerialEnv(3, [lambda n=n: CountingEnv(n) for n in (2, 3, 2)])
    with Collector(env, frames_per_batch=18) as collector:
        ids = torch.cat([next(collector)["collector", "traj_ids"] for _ in range(2)], -1)
    assert ids[:, :6].tolist() == [[0, 0, 3, 3, 6, 6], [1, 1, 1, 5, 5, 5], [2, 2, 4, 4, 7, 7]]
    assert sorted({*ids.flatten().tolist()}) == list(range(int(ids.max()) + 1))


def test_the_root_decides_when_agents_end_the_trajectory() -> None:
    """Agents that end alone end the trajectory unless the root has its own done."""

    def ids(root: str | None) -> list[int]:
        with Collector(NestedCountingEnv(2, spread=1, root_done=root), frames_per_batch=6) as collector:
            return next(collector)["collector", "traj_ids"].tolist()

    assert ids("all") == [0, 0, 0, 1, 1, 1]
    assert ids("any") == [0, 0, 1, 1, 2, 2]
    assert ids(None) == [0, 0, 1, 2, 3, 3]


def test_set_truncated_marks_the_last_frame_of_what_is_yielded() -> None:
    env = TransformedEnv(CountingEnv(100, batch_size=(2,)), StepCounter(max_steps=50))
    with Collector(env, frames_per_batch=6, set_truncated=True) as collector:
        first, second = next(collector), next(collector)
    assert first["next", "truncated"].squeeze(-1).tolist() == [[False, False, True]] * 2
    assert first["next", "done"].squeeze(-1).tolist() == [[False, False, True]] * 2
    assert not first["next", "terminated"].any()
    assert not second["done"].any(), "episodes go on"
    assert second["observation"][0, 0].item() == 3
    assert second["collector", "traj_ids"].tolist() == first["collector", "traj_ids"].tolist()


def test_set_truncated_of_stacked_data_leaves_the_episode_alone() -> None:
    env = TextCountingEnv(100).add_truncated_keys()
    with Collector(env, frames_per_batch=3, set_truncated=True) as collector:
        first, second = next(collector), next(collector)
    assert first["next", "truncated"].flatten().tolist() == [False, False, True]
    assert second["done"].any().item() is False
    assert second["collector", "traj_ids"].tolist() == [0, 0, 0]


def test_set_truncated_needs_the_entry() -> None:
    env = CountingEnv()
    done = env.full_done_spec.clone()
    if "truncated" in done.keys():
        del done["truncated"]
    env.full_done_spec = done
    with pytest.raises(SpecError, match="add_truncated_keys"):
        Collector(env, frames_per_batch=3, set_truncated=True)
