"""History: agents that read the last steps of their episode."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from steppe import Agent, Collector, Composite, FunctionalAgent, Unbounded
from steppe_agents import replay
from tests.core.collectors.counters_and_walks import counters, make, told

SIZE = 3


class Looking(Agent):
    """Stores what its history shows: counted times, actions and rewards, and which steps exist."""

    history = SIZE

    def forward(self, tensordict: Any) -> Any:
        steps = tensordict["history"]
        tensordict.set("action", tensordict["t"].squeeze(-1) % 2)
        tensordict.set("seen", steps["t"].squeeze(-1))
        tensordict.set("followed", steps["next", "t"].squeeze(-1))
        tensordict.set("acted", steps["action"])
        tensordict.set("exist", steps["mask"])
        return tensordict


def check(steps: Any) -> None:
    """Check single steps ``[k]``."""
    for step in steps:
        t = int(step["t"])
        times = list(range(max(t - SIZE, 0), t))
        missing = SIZE - len(times)
        assert step["exist"].tolist() == [False] * missing + [True] * len(times)
        assert step["seen"].tolist() == [0] * missing + times
        assert step["followed"].tolist() == [0] * missing + [time + 1 for time in times]
        assert step["acted"].tolist() == [0] * missing + [time % 2 for time in times]


@pytest.mark.parametrize("workers", [0, 2])
def test_an_agent_sees_the_last_steps_of_its_episode(workers: int) -> None:
    with make(workers, lambda: counters(2), Looking()) as collector:
        found = collector.execute(env_info=told([5, 1, 7, 2, 4, 6])).result()
    assert found.length.tolist() == [5, 1, 7, 2, 4, 6]
    check(found.flat())
    again = replay(Looking(), found, keys=["seen", "exist", "acted"])
    for key in ("seen", "exist", "acted"):
        assert torch.equal(again[key], found.steps[key])


def test_an_automatic_reset_begins_another_history() -> None:
    with Collector(lambda: counters(2), Looking(), auto_reset=True) as collector:
        collector.reset(env_info=told([5, 3]))
        first = collector.execute(n_steps=9).result()
        check(first.flat())
        check(collector.execute(n_steps=4).result().flat())
    again = replay(Looking(), first, keys=["seen"], bootstrap=True)
    assert torch.equal(again["seen"], first.steps["seen"])
    assert again["next", "seen"][0, 4].tolist() == [2, 3, 4], "the value at the end of an episode sees its last steps"


def test_batches_pass_the_history_too() -> None:
    with Collector(lambda: counters(2), Looking(), frames_per_batch=12, total_frames=24) as collector:
        collector.reset(env_info=told([5, 4]))
        for batch in collector:
            check(batch.reshape(-1))


def test_a_function_gets_the_history_as_its_last_argument() -> None:
    def step(state: Any, observation: Any, agent_info: Any, history: Any) -> Any:
        steps = history["mask"].sum(-1)
        return {"action": torch.zeros(len(steps), dtype=torch.int64), "steps": steps}, {"n": state["n"] + 1}

    agent = FunctionalAgent(step, agent_state_spec=Composite(n=Unbounded((), dtype=torch.int64)), history=2)
    with Collector(lambda: counters(1), agent) as collector:
        found = collector.execute(env_info=told([4])).result()
    assert found.steps["steps"].tolist() == [[0, 1, 2, 2]]
