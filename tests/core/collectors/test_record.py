"""Trajectories: what a request comes back as."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from steppe import (
    Collector,
    Trajectories,
    split_trajectories,
)
from steppe_testing import assert_equal_data
from tests.core.collectors.counters_and_walks import (
    UniformAgent,
    counters,
    ids,
    told,
)


@pytest.fixture
def record() -> Trajectories:
    with Collector(lambda: counters(3), UniformAgent()) as collector:
        collector.execute(agent_info=ids("agent_id", 4), env_info=told([3, 1, 5, 2]))
        return collector.get()


def test_slices_and_masks_keep_steps_and_infos_together(record: Trajectories, tmp_path: Any) -> None:
    for part in (record[1:3], record[record.length > 2], record.to("cpu"), record.reshape(2, 2).reshape(4)[1:3]):
        assert part.steps.batch_size[:-1] == part.batch_size
        first = part.steps["env_id"][:, 0].flatten()
        assert torch.equal(first, part.env_info["env_id"])
        assert torch.equal(first, part.agent_info["agent_id"])
    kept = record.memmap(tmp_path / "kept")
    assert_equal_data(Trajectories.load_memmap(tmp_path / "kept").steps, kept.steps)


def test_rows_of_different_lengths_are_joined(record: Trajectories) -> None:
    joined = Trajectories.cat([record[1:2].shorten(), record])
    assert joined.steps.batch_size == (5, 5)
    assert joined.length.tolist() == [1, 3, 1, 5, 2]
    assert (joined.steps["next", "reward"][0, 1:] == 0).all()
    assert record.pad_to(9).steps.batch_size == (4, 9)
    with pytest.raises(ValueError, match="5 steps, more than 4"):
        record.pad_to(4)


def test_a_record_becomes_frames(record: Trajectories) -> None:
    flat = record.flat()
    assert flat.batch_size == (11,)
    assert flat["t"].flatten().tolist() == [0, 1, 2, 0, 0, 1, 2, 3, 4, 0, 1]
    steps = record.as_steps()
    assert steps["agent_info", "agent_id"].stride()[-1] == 0
    split = split_trajectories(steps)
    assert split.batch_size == (4, 5)
    assert torch.equal(split["collector", "mask"], record.mask())
    assert record.at(0)["t"].eq(0).all()
    with pytest.raises(IndexError):
        record.at(1)


@pytest.mark.parametrize("store", ["first", "all", "none"])
def test_rows_that_went_over_several_episodes_are_split(store: str) -> None:
    with Collector(lambda: counters(2), UniformAgent(), auto_reset=True, store_agent_state=store) as collector:
        collector.reset_lanes(agent_info=ids("agent_id", 2), env_info=told([3, 4]))
        collector.execute(n_steps=2)
        collector.get()
        collector.execute(n_steps=6)
        found = collector.get()
    agent = UniformAgent()
    pieces = found.split(agent)
    assert pieces.row.tolist() == [0, 0, 0, 1, 1]
    assert pieces.length.tolist() == [1, 3, 2, 2, 4]
    assert pieces.alive.tolist() == [False, False, True, False, True]
    assert pieces.steps["is_init"][:, 0].flatten().tolist() == [False, True, True, False, True]
    assert pieces.steps["is_init"][:, 1:].sum() == 0
    assert pieces.env_info["env_id"].tolist() == [0, 0, 0, 1, 1]
    assert pieces.agent_info["agent_id"].tolist() == [0, 0, 0, 1, 1]
    assert len(set(pieces.episode.tolist())) == 5
    assert pieces.episode[pieces.steps["is_init"][:, 0, 0].logical_not()].tolist() == found.episode.tolist()
    assert torch.equal(pieces.flat()["t"], found.flat()["t"])
    padding = pieces.steps[~pieces.mask()]
    assert all((padding[key] == 0).all() for key in padding.keys(True, True))
    if store == "none":
        assert pieces.agent_state is None
    else:
        assert pieces.agent_state["timestep"].tolist() == [2, 0, 0, 2, 0]
        assert (found.split().agent_state is None) == (store == "first")


def test_rows_of_one_episode_stay_whole(record: Trajectories) -> None:
    pieces = record.split()
    assert_equal_data(pieces.steps, record.steps)
    assert torch.equal(pieces.agent_state["timestep"], record.agent_state["timestep"])
    assert record.reshape(2, 2).split().batch_size == (4,)
