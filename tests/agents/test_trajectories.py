"""Trajectories: the result of a request."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tensordict import TensorDict
from torch import nn

from steppe import (
    Agent,
    Collector,
    Composite,
    Trajectories,
    Unbounded,
    split_trajectories,
)
from steppe_testing import assert_equal_data
from tests.core.collectors.counters_and_walks import (
    UniformAgent,
    counters,
    echo,
    ids,
    make,
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
    read = Trajectories.load_memmap(tmp_path / "kept")
    assert_equal_data(read.steps, kept.steps)
    assert read.length.tolist() == [3, 1, 5, 2]
    for name in ("agent_info", "env_info", "agent_state"):
        assert_equal_data(getattr(read, name), getattr(record, name))


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
        collector.reset(agent_info=ids("agent_id", 2), env_info=told([3, 4]))
        collector.execute(n_steps=2)
        collector.get()
        collector.execute(n_steps=6)
        found = collector.get()
    agent = UniformAgent()
    pieces = found.split(agent)
    assert pieces.row.tolist() == [0, 0, 0, 1, 1]
    assert pieces.length.tolist() == [1, 3, 2, 2, 4]
    assert pieces.alive.tolist() == [False, False, True, False, False], "the last piece of row 1 ends with the slice"
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


@pytest.mark.parametrize("workers", [0, 2])
def test_steps_of_a_row_with_several_episodes_name_each(workers: int) -> None:
    with make(workers, lambda: counters(2), echo, auto_reset=True) as collector:
        n = 2 * max(workers, 1)
        collector.reset(env_info=told([2, 5, 3, 4][:n]))
        frames = []
        for n_steps in (3, 7, 4):
            collector.execute(n_steps=n_steps)
            frames.append(collector.get().as_steps())
    joined = torch.cat(frames, 1)
    numbers, time = joined["collector", "traj_ids"], joined["t"].squeeze(-1)
    assert (numbers[:, 1:] != numbers[:, :-1]).equal(time[:, 1:] == 0)
    assert len(numbers.unique()) == int((time == 0).sum())


def test_rows_of_one_episode_stay_whole(record: Trajectories) -> None:
    pieces = record.split()
    assert_equal_data(pieces.steps, record.steps)
    assert torch.equal(pieces.agent_state["timestep"], record.agent_state["timestep"])
    assert record.reshape(2, 2).split().batch_size == (4,)


class Recurrent(Agent):
    """A recurrent net whose first state is learned, one for each agent."""

    agent_info_spec = Composite(agent_id=Unbounded((), dtype=torch.int64))
    agent_info_default = {"agent_id": 0}
    agent_state_spec = Composite(h=Unbounded((5,)))

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.cell, self.head, self.first = nn.GRUCell(1, 5), nn.Linear(5, 2), nn.Embedding(8, 5)

    def initial_state(self, tensordict: Any) -> Any:
        return TensorDict({"h": self.first(tensordict["agent_info", "agent_id"])}, tensordict.batch_size)

    def forward(self, tensordict: Any) -> Any:
        h = self.cell(tensordict["t"].float() / 10, tensordict["agent_state", "h"])
        probs = self.head(h).softmax(-1)
        tensordict.set("probs", probs)
        tensordict.set("action", probs.argmax(-1))
        return tensordict.set(("next", "agent_state", "h"), h)


def replayed(agent: Recurrent, record: Trajectories) -> torch.Tensor:
    """The probabilities that an agent gives for recorded steps, from the recorded first states; 0 behind the end."""
    mask, state, out = record.mask(), record.agent_state, []
    for step in range(mask.shape[1]):
        td = record.steps[:, step].exclude("next", "probs", "agent_state")
        td.set("agent_info", record.agent_info)
        begins = td["is_init"].squeeze(-1) if step else torch.zeros_like(mask[:, 0])
        h = torch.where(begins.unsqueeze(-1), agent.initial_state(td)["h"], state["h"])
        td.set("agent_state", TensorDict({"h": h}, td.batch_size))
        td = agent(td)
        out.append(torch.where(mask[:, step : step + 1], td["probs"], 0))
        state = td["next", "agent_state"]
    return torch.stack(out, 1)


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("auto_reset", [False, True])
def test_recorded_states_are_those_that_the_agent_acted_on(workers: int, auto_reset: bool) -> None:
    agent = Recurrent()
    lengths = [3, 1, 7, 5, 2, 9, 4, 6]
    lanes = 8 // max(workers, 1)
    with make(workers, lambda: counters(lanes), agent, auto_reset=auto_reset) as collector:
        if auto_reset:
            collector.reset(agent_info=ids("agent_id", 8), env_info=told(lengths))
            collector.execute(n_steps=4).result()
            found = collector.execute(n_steps=10).result()
        else:
            found = collector.execute(agent_info=ids("agent_id", 8), env_info=told(lengths)).result()
    with torch.no_grad():
        whole, pieces = replayed(agent, found), found.split(agent)
        assert torch.allclose(whole, found.steps["probs"], atol=1e-5)
        assert len(pieces) > 8 if auto_reset else len(pieces) == 8
        again = replayed(agent, pieces)
    assert torch.allclose(again[pieces.mask()], whole[found.mask()], atol=1e-5), "piece by piece, in the same order"
