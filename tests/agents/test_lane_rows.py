"""Requests whose lanes are stepped through the row writer give the data of steps on TensorDicts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from tensordict import TensorDict

from steppe import Collector, Composite, EnvBase, ParallelEnv, SerialEnv, StepCounter, TransformedEnv, Unbounded
from steppe_agents import lane_rows
from steppe_gym import GymEnv
from steppe_testing import assert_equal_data
from tests.core.collectors.counters_and_walks import UniformAgent, make, wrapped_walk


class Counting(UniformAgent):
    """An agent whose first state is its number."""

    agent_state_spec = Composite(timestep=Unbounded((), dtype=torch.int64))

    def initial_state(self, tensordict: Any) -> Any:
        assert tensordict["is_init"].all()
        return TensorDict({"timestep": 1000 * tensordict["agent_info", "agent_id"]}, tensordict.batch_size)


def walks(n: int, make: Any = SerialEnv) -> Callable[[], Any]:
    return lambda: make(n, wrapped_walk)


def counted(n: int) -> Callable[[], Any]:
    return lambda: TransformedEnv(SerialEnv(n, wrapped_walk), StepCounter(7))


def infos(rows: int) -> dict[str, Any]:
    return {
        "agent_info": TensorDict({"agent_id": torch.arange(rows) % 5}, [rows]),
        "env_info": TensorDict({"env_id": torch.arange(rows) + 3}, [rows]),
    }


def once(collector: Any, rows: int) -> list[Any]:
    return [collector.execute(**infos(rows)).result()]


ALL = {"store_agent_state": "all"}
CASES: dict[str, tuple[Callable[[], Any], Any, dict[str, Any], Callable[[Any], Any]]] = {
    "random": (walks(3), None, {}, lambda each: [each.execute(n_episodes=11).result()]),
    "one environment": (wrapped_walk, Counting(), {}, lambda each: once(each, 5)),
    "agents": (walks(4), Counting(), {}, lambda each: once(each, 13) + once(each, 6)),
    "all states": (walks(4), Counting(), ALL, lambda each: once(each, 6)),
    "whole batches": (walks(3), Counting(), {"compact": False}, lambda each: once(each, 7)),
    "limit": (walks(3), UniformAgent(), {"max_steps": 3}, lambda each: once(each, 10)),
    "transforms": (counted(3), UniformAgent(), {}, lambda each: once(each, 8)),
    "processes": (walks(2, ParallelEnv), UniformAgent(), {}, lambda each: [each.execute(n_episodes=9).result()]),
    "slices": (walks(4), Counting(), {"max_steps": 9}, lambda each: sliced(each)),
    "slices that go on": (walks(3), Counting(), {"auto_reset": True, **ALL}, lambda each: sliced(each)),
}


def sliced(collector: Any) -> list[Any]:
    collector.reset(**infos(collector.n_lanes))
    found = [collector.execute(n_steps=4).result()]
    for n_steps in (3, 6):
        if collector.n_live:
            found.append(collector.execute(n_steps=n_steps).result())
    job = collector.finish()
    return found if job is None else [*found, job.result()]


@pytest.mark.parametrize("name", CASES)
def test_rows_give_the_data_of_steps_on_tensordicts(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    env, policy, settings, request = CASES[name]
    runs = []

    def collect() -> list[Any]:
        with Collector(env, policy, seed=4, policy_seeds=6, **settings) as collector:
            return request(collector)  # type: ignore[no-any-return]

    run = lane_rows.LaneRows.run
    monkeypatch.setattr(lane_rows.LaneRows, "run", lambda *args: (runs.append(args), run(*args)))
    found = collect()
    assert runs, "the lanes were stepped through rows"
    monkeypatch.setattr(lane_rows.LaneRows, "problem", lambda *args: "for this test")
    expected = collect()
    for ours, theirs in zip(found, expected, strict=True):
        assert_equal_data(ours.to_tensordict(), theirs.to_tensordict())


@pytest.mark.parametrize("length", [1, 5])
def test_short_blocks_carry_long_rows(length: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def collect() -> Any:
        with Collector(walks(4), Counting(), seed=2, policy_seeds=3) as collector:
            job = collector.execute(**infos(23))
            parts = []
            while not job.done():
                parts += [part] if (part := job.partial()) is not None else []
            parts += [part] if (part := job.partial()) is not None else []
            return torch.cat([part.length for part in parts]), torch.cat([part.row for part in parts]), parts

    lengths, rows, _ = collect()
    monkeypatch.setattr("steppe_agents.slots._MOST", length)
    monkeypatch.setattr("steppe_agents.slots._FEWEST", 1)
    short_lengths, short_rows, parts = collect()
    assert torch.equal(short_lengths[short_rows.argsort()], lengths[rows.argsort()])
    for part in parts:
        for row in range(len(part)):
            assert part.steps["agent_id"][row, : part.length[row]].eq(part.agent_info["agent_id"][row]).all()
            assert part.last()["next", "done"].all()


def test_an_entry_that_changes_in_rows_is_named() -> None:
    def growing(tensordict: TensorDict) -> TensorDict:
        calls.append(1)
        tensordict.set("notes", torch.zeros(len(tensordict), 4 if len(calls) > 3 else 2))
        return tensordict.set("action", torch.zeros(len(tensordict), dtype=torch.int64))

    calls: list[int] = []
    with Collector(walks(2), growing) as collector:
        collector.execute(n_episodes=30)
        with pytest.raises(ValueError, match=r"'notes' has shape \(4,\).* had \(2,\)"):
            collector.get()
        calls.clear()
        assert len(collector.execute(n_steps=2).result()) == 2


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("lanes", [None, 2])
def test_actions_may_have_another_dtype(lanes: int | None, workers: int) -> None:
    """Actions with the values of their spec are taken and stored in its dtype, as in batches."""

    def act(tensordict: TensorDict) -> TensorDict:
        first = tensordict["observation"][..., 2] > 0
        return tensordict.set("action", torch.stack([first, ~first], -1))

    def env() -> EnvBase:
        return GymEnv("CartPole-v1") if lanes is None else SerialEnv(lanes, "gym:CartPole-v1")

    with make(workers, env, act) as collector:
        found = collector.execute(n_episodes=5).result()
    action = found.steps["action"][found.mask()]
    assert action.dtype is GymEnv("CartPole-v1").action_spec.dtype
    assert torch.equal(action[:, 0] == 1, found.steps["observation"][found.mask()][:, 2] > 0)
    assert action.sum(-1).eq(1).all()
