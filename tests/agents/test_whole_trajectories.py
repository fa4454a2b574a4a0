"""Batches of whole trajectories contain only trajectories that have ended."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tensordict import TensorDictBase

from steppe import Collector, EnvBase, SerialEnv
from steppe_testing import ArrayCountingEnv, TextCountingEnv
from tests.core.collectors.buffers import Buffer


def make() -> EnvBase:
    """Two environments whose episodes are 3 and 5 steps long."""
    return SerialEnv(2, [lambda: ArrayCountingEnv(3), lambda: ArrayCountingEnv(5)])


def batches(frames: int = 40, **arguments: Any) -> list[TensorDictBase]:
    with Collector(make, frames_per_batch=4, total_frames=frames, seed=0, **arguments) as collector:
        return list(collector)


def test_the_number_of_trajectories_may_be_a_whole_float() -> None:
    assert {len(data) for data in batches(trajs_per_batch=2.0)} == {2}


def test_whole_trajectories_come_padded_with_a_mask() -> None:
    found = batches(trajs_per_batch=2)

    assert len(found) >= 3
    assert {len(data) for data in found} == {2}
    for data in found:
        mask = data["collector", "mask"]
        lengths = mask.sum(-1)
        for row, length in enumerate(lengths.tolist()):
            ends = data["next", "done"][row, :length, 0]
            assert ends.tolist() == [False] * (length - 1) + [True]
            assert data["observation"][row, 0] == 0
            assert data["collector", "traj_ids"][row, :length].unique().numel() == 1
        assert not data["observation"][~mask].any()


def test_whole_trajectories_come_one_after_the_other() -> None:
    for data in batches(trajs_per_batch=3, traj_format="cat"):
        assert data.batch_dims == 1
        assert int(data["next", "done"].sum()) == 3
        assert data["next", "done"][-1]
        assert ("collector", "mask") not in data.keys(include_nested=True)


def test_whole_trajectories_hold_the_frames_of_the_batches() -> None:
    """The frames equal those of batches, without episodes that have not ended."""
    whole = torch.cat(batches(trajs_per_batch=1, traj_format="cat"))
    plain = torch.cat(batches(), 1)
    for number in whole["collector", "traj_ids"].unique().tolist():
        one = whole[whole["collector", "traj_ids"] == number]
        other = plain[plain["collector", "traj_ids"] == number]
        assert (one == other).all()
    ended = int(plain["next", "done"].sum())
    assert whole["collector", "traj_ids"].unique().numel() == ended


def test_whole_trajectories_go_to_the_replay_buffer_as_they_end() -> None:
    buffer, several = Buffer(), Buffer()

    assert batches(trajs_per_batch=2, trajs_per_write=1, replay_buffer=buffer) == [None] * 10
    assert {int(data["next", "done"].sum()) for data in buffer.extended} == {1}
    batches(trajs_per_batch=2, replay_buffer=several)
    assert (torch.cat(several.extended) == torch.cat(buffer.extended)).all()


def test_a_reset_forgets_what_has_not_ended() -> None:
    with Collector(make, frames_per_batch=4, trajs_per_batch=1, traj_format="cat") as collector:
        next(collector)
        collector.reset()
        data = next(collector)
        assert data["observation"][0].item() == 0
        assert data["next", "done"].sum() == 1
    with Collector(make, frames_per_batch=4, trajs_per_batch=1, total_frames=40, reset_at_each_iter=True) as collector:
        assert list(collector) == [], "no episode ends within two steps"


def test_trajectories_with_text_are_whole() -> None:
    with Collector(lambda: TextCountingEnv(4), frames_per_batch=3, trajs_per_batch=2) as collector:
        data = next(collector)

    assert data.batch_size == (2, 4)
    text = next(key for key in data.keys() if not isinstance(data.get(key), torch.Tensor) and key == "text")
    assert len(data.get(text).tolist()[1]) == 4


@pytest.mark.parametrize("padded", ["padded", "cat", None])
def test_an_invalid_format_is_an_error(padded: Any) -> None:
    with Collector(make, frames_per_batch=4, trajs_per_batch=1, traj_format=padded) as collector:
        assert collector.traj_format == (padded or "padded")
