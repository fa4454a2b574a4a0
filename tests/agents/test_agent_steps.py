"""Agents in batches have the same entries as in requests."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from steppe import Agent, Collector, Composite, EnvBase, InitTracker, SerialEnv, TransformedEnv, Unbounded
from steppe.errors import InfoError, PolicyError
from steppe_testing import ArrayCountingEnv, CountingEnv, assert_equal_data

WHOLE = torch.int64


class Remembering(Agent):
    """An agent that counts its steps from 100 and records its info; acts at random."""

    agent_info_spec = Composite(scale=Unbounded((2,)))
    agent_info_default = {"scale": torch.tensor([3.0, 4.0])}
    agent_state_spec = Composite(steps=Unbounded((), dtype=WHOLE))

    def initial_state(self, tensordict: Any) -> Any:
        assert tensordict["is_init"].all()
        assert tensordict["observation"].eq(0).all()
        return super().initial_state(tensordict).apply(lambda value: value + 100)

    def forward(self, tensordict: Any) -> Any:
        assert tensordict.batch_dims == 1
        rows = tensordict.batch_size
        tensordict.set("action", torch.eye(3, dtype=torch.bool)[torch.randint(3, rows)])
        tensordict.set("seen", tensordict["agent_state", "steps"].clone())
        tensordict.set("told", tensordict["agent_info", "scale"].sum(-1))
        tensordict.set(("next", "agent_state", "steps"), tensordict["agent_state", "steps"] + 1)
        return tensordict


ENVS: dict[str, Any] = {
    "one": lambda: CountingEnv(4),
    "a batch": lambda: CountingEnv(4, batch_size=(3,)),
    "two dimensions": lambda: CountingEnv(4, batch_size=(3, 2)),
    "serial": lambda: SerialEnv(2, [lambda: ArrayCountingEnv(4), lambda: ArrayCountingEnv(7)]),
    "tracked": lambda: TransformedEnv(SerialEnv(2, lambda: CountingEnv(4)), InitTracker()),
}


@pytest.mark.parametrize("name", ENVS)
def test_declared_state_is_passed_on_and_starts_with_episodes(name: str) -> None:
    """The state continues from step to step, and each episode begins with a new one."""
    env = ENVS[name]()
    with Collector(env, Remembering(), frames_per_batch=5 * env.numel(), total_frames=15 * env.numel()) as collector:
        batches = list(collector)
    for batch in batches:
        count = batch["observation"].squeeze(-1)
        assert torch.equal(batch["seen"], 100 + count.long())
        assert torch.equal(batch["is_init"].squeeze(-1), count == 0)
        assert batch["told"].eq(7).all()
        assert batch["agent_info", "scale"].shape == (*batch.batch_size, 2)
        assert batch["agent_info", "scale"].stride(-2) == 0, "told of a row, not of each frame"
        assert "agent_state" not in batch.keys()


def test_states_are_kept_on_request() -> None:
    env = ENVS["serial"]()
    with Collector(env, Remembering(), frames_per_batch=20, store_agent_state="all") as collector:
        for batch in (next(collector), next(collector)):
            assert torch.equal(batch["agent_state", "steps"], batch["seen"])
            assert torch.equal(batch["next", "agent_state", "steps"], batch["seen"] + 1)


@pytest.mark.parametrize("store", ["first", "all"])
def test_agents_in_workers_keep_their_state(store: str) -> None:
    with Collector(
        ENVS["serial"], Remembering(), num_workers=2, frames_per_batch=24, seed=0, store_agent_state=store
    ) as collector:
        for batch in (next(collector), next(collector)):
            assert batch.batch_size == (4, 6)
            assert torch.equal(batch["seen"], 100 + batch["observation"].squeeze(-1).long())
            assert batch["agent_info", "scale"][..., 0].eq(3).all()
            assert (("agent_state", "steps") in batch.keys(True)) == (store == "all")


def test_iterating_is_asking_for_slices_in_a_loop() -> None:
    def make() -> EnvBase:
        return SerialEnv(16, lambda: CountingEnv(5, noise=True))

    arguments = {"seed": 3, "store_agent_state": "all"}
    with (
        Collector(make, Remembering(), frames_per_batch=64, total_frames=640, **arguments) as iterating,
        Collector(make, Remembering(), auto_reset=True, **arguments) as asked,
    ):
        batches = list(iterating)
        torch.manual_seed(3)
        asked.set_seed(3)
        found = [asked.execute(n_steps=4).result() for _ in range(10)]
    assert [batch.batch_size for batch in batches] == [(16, 4)] * 10
    for batch, each in zip(batches, found, strict=True):
        assert each.mask().all()
        steps = each.as_steps()
        assert steps["agent_info", "scale"].stride(-2) == batch["agent_info", "scale"].stride(-2) == 0
        assert_equal_data(batch.exclude("collector"), steps.exclude("collector"))


def test_random_frames_leave_the_agent_state_unchanged() -> None:
    with Collector(CountingEnv(100), Remembering(), frames_per_batch=6, init_random_frames=6) as collector:
        assert "seen" not in next(collector).keys(), "the agent did not act"
        assert next(collector)["seen"].tolist() == [100, 101, 102, 103, 104, 105]


def test_missing_agent_info_names_how_to_pass_it() -> None:
    """If an agent gets no agent_info that it needs, the error says how to pass it."""

    class Told(Remembering):
        agent_info_default = None

    with (
        Collector(CountingEnv(4), Told(), frames_per_batch=6) as collector,
        pytest.raises(InfoError, match=r"agent_info_default.*execute\(agent_info="),
    ):
        next(collector)


def test_a_state_that_is_not_written_is_named() -> None:
    class Forgetful(Remembering):
        def forward(self, tensordict: Any) -> Any:
            super().forward(tensordict)
            del tensordict["next"]
            return tensordict

    with (
        Collector(CountingEnv(4), Forgetful(), frames_per_batch=6) as collector,
        pytest.raises(PolicyError, match=r"\('next', 'agent_state', 'steps'\)"),
    ):
        next(collector)
