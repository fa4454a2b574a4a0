"""replay gives the entries of collection again, with gradients."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tensordict import TensorDict
from tensordict.nn import ProbabilisticTensorDictModule, ProbabilisticTensorDictSequential, TensorDictModule
from torch import nn

from steppe import Agent, Collector, Composite, FunctionalAgent, SerialEnv, Unbounded
from steppe.errors import PolicyError, SpecError
from steppe_agents import replay, rollouts
from steppe_testing import assert_equal_data
from tests.core.collectors.counters_and_walks import CountTo, counters, ids, told


class Gru(Agent):
    """A recurrent agent with a value, whose first state is learned, one for each agent."""

    agent_info_spec = Composite(agent_id=Unbounded((), dtype=torch.int64))
    agent_info_default = {"agent_id": 0}
    agent_state_spec = Composite(h=Unbounded((6,)))

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.cell, self.head, self.first = nn.GRUCell(1, 6), nn.Linear(6, 3), nn.Embedding(40, 6)

    def initial_state(self, tensordict: Any) -> Any:
        return TensorDict({"h": self.first(tensordict["agent_info", "agent_id"])}, tensordict.batch_size)

    def forward(self, tensordict: Any) -> Any:
        h = self.cell(tensordict["t"].float() / 7, tensordict["agent_state", "h"])
        out = self.head(h)
        tensordict.set("probs", out[:, :2].softmax(-1))
        tensordict.set("value", out[:, 2])
        tensordict.set("action", torch.multinomial(tensordict["probs"], 1).squeeze(-1))
        return tensordict.set(("next", "agent_state", "h"), h)


LENGTHS = [4, 9, 1, 6, 3, 12, 2]


def collected(agent: Any, *, slices: bool = False, **settings: Any) -> Any:
    with Collector(lambda: counters(3), agent, auto_reset=slices, **settings) as collector:
        if slices:
            collector.reset(agent_info=ids("agent_id", 3), env_info=told([3, 5, 20]))
            collector.execute(n_steps=2).result()
            return collector.execute(n_steps=9).result()
        infos = {"agent_info": ids("agent_id", len(LENGTHS))} if isinstance(agent, Agent) else {}
        return collector.execute(env_info=told(LENGTHS), **infos).result()


@pytest.mark.parametrize("slices", [False, True])
@pytest.mark.parametrize("store", ["first", "all"])
def test_a_replay_equals_collection(slices: bool, store: str) -> None:
    agent = Gru()
    found = collected(agent, slices=slices, store_agent_state=store)
    before = found.clone()
    again = replay(agent, found, keys=["probs", "value"])
    assert again.batch_size == found.steps.batch_size
    assert again.names == [None, "time"]
    mask = found.mask()
    for key in ("probs", "value"):
        assert torch.allclose(again[key][mask], found.steps[key][mask], atol=1e-5)
        assert again[key][~mask].eq(0).all()
    assert_equal_data(found.to_tensordict(), before.to_tensordict())


@pytest.mark.parametrize("store", ["first", "all"])
def test_the_episodes_of_rows_replay_like_the_rows(store: str) -> None:
    agent = Gru()
    found = collected(agent, slices=True, store_agent_state=store)
    pieces = found.split(agent)
    assert len(pieces) > len(found)
    whole, parts = (replay(agent, each, keys=["value"])["value"][each.mask()] for each in (found, pieces))
    assert torch.allclose(whole, parts, atol=1e-6)


def test_a_replay_has_the_gradients_of_a_loop() -> None:
    agent = Gru()
    found = collected(agent)
    found.steps["t"][~found.mask()] = -(10**9)
    loss = replay(agent, found, keys=["value"], state="recompute")["value"].pow(2).sum()
    ours = torch.autograd.grad(loss, list(agent.parameters()))
    total = torch.zeros(())
    for row, length in enumerate(LENGTHS):
        h = agent.first(torch.tensor([row]))
        for step in range(length):
            h = agent.cell(torch.tensor([[step / 7]]), h)
            total = total + agent.head(h)[0, 2].pow(2)
    theirs = torch.autograd.grad(total, list(agent.parameters()))
    for own, other in zip(ours, theirs, strict=True):
        assert torch.allclose(own, other, atol=1e-4)
    stored = replay(agent, found, keys=["value"])["value"].pow(2).sum()
    assert torch.autograd.grad(stored, agent.first.weight, allow_unused=True) == (None,)


@pytest.mark.parametrize("store", ["first", "all"])
def test_stored_states_have_no_gradient_in_the_middle_of_rows(store: str) -> None:
    """Only ``state="recompute"`` trains the initial state, wherever in a row an episode begins."""
    agent = Gru()
    found = collected(agent, slices=True, store_agent_state=store)
    assert found.steps["is_init"][:, 1:].any()
    for rows in (found, found.split(agent)):
        stored = replay(agent, rows, keys=["value"])["value"].sum()
        assert torch.autograd.grad(stored, agent.first.weight, allow_unused=True) == (None,)
        recomputed = replay(agent, rows, keys=["value"], state="recompute")["value"].sum()
        assert torch.autograd.grad(recomputed, agent.first.weight)[0].any()


@pytest.mark.parametrize("slices", [False, True])
def test_bootstrap_adds_the_value_of_the_next_step(slices: bool) -> None:
    agent = Gru()
    found = collected(agent, slices=slices)
    again = replay(agent, found, keys=["value"], bootstrap=True)
    mask, begins = found.mask(), found.steps["is_init"].squeeze(-1)
    h: Any = None
    for row in range(len(found)):
        h = found.agent_state["h"][row : row + 1]
        length = int(found.length[row])
        for step in range(length):
            if step and begins[row, step]:
                h = agent.first(found.agent_info["agent_id"][row : row + 1])
            h = agent.cell(found.steps["t"][row, step].float().reshape(1, 1) / 7, h)
            last = step == length - 1 or bool(begins[row, step + 1])
            if last:
                after = agent.cell(found.steps["next", "t"][row, step].float().reshape(1, 1) / 7, h)
                expected = agent.head(after)[0, 2]
            else:
                expected = again["value"][row, step + 1]
            assert torch.allclose(again["next", "value"][row, step], expected, atol=1e-5)
    assert again["next", "value"][~mask].eq(0).all()


def test_a_probabilistic_policy_scores_the_recorded_action() -> None:
    class Bernoulli(torch.distributions.Categorical):
        """A distribution without a plan of its own."""

    net = nn.Linear(1, 2)
    policy = ProbabilisticTensorDictSequential(
        TensorDictModule(lambda t: net(t.float()), ["t"], ["logits"]),
        ProbabilisticTensorDictModule(["logits"], ["action"], distribution_class=Bernoulli),
    )
    found = collected(policy)
    again = replay(policy, found)
    mask = found.mask()
    dist = torch.distributions.Categorical(logits=net(found.steps["t"].float()))
    assert torch.allclose(again["log_prob"][mask], dist.log_prob(found.steps["action"])[mask], atol=1e-6)
    assert torch.allclose(again["entropy"][mask], dist.entropy()[mask], atol=1e-6)
    assert "action" not in again.keys()
    assert again["log_prob"][~mask].eq(0).all()
    assert torch.autograd.grad(again["log_prob"].sum(), net.weight)[0].abs().sum() > 0


def test_a_replay_says_what_is_missing() -> None:
    agent = Gru()
    found = collected(agent, store_agent_state="none")
    with pytest.raises(KeyError, match="store_agent_state='first'"):
        replay(agent, found)
    with pytest.raises(KeyError, match=r"does not write 'advantage'.* 'probs', 'value'"):
        replay(agent, found, keys=["advantage"], state="recompute")
    with pytest.raises(SpecError, match="'stored' or 'recompute', found 'fresh'"):
        replay(agent, found, state="fresh")  # type: ignore[arg-type]


# -- agents made of functions and modules -----------------------------------------------------------------------------


@pytest.mark.parametrize("triplet", [False, True])
def test_an_agent_may_be_two_functions(triplet: bool) -> None:
    def step(state: Any, observation: Any, agent_info: Any) -> Any:
        n = len(observation)
        outputs = {"action": torch.ones(n, dtype=torch.int64), "seen": state["k"] + agent_info["agent_id"]}
        following = {"k": state["k"] + 1}
        return (state, outputs, following) if triplet else (outputs, following)

    agent = FunctionalAgent(
        step,
        lambda agent_info, n: {"k": 100 * agent_info["agent_id"]},
        agent_info_spec=Composite(agent_id=Unbounded((), dtype=torch.int64)),
        agent_state_spec=Composite(k=Unbounded((), dtype=torch.int64)),
    )
    with Collector(lambda: counters(2), agent) as collector:
        found = collector.execute(agent_info=ids("agent_id", 4), env_info=told([3, 1, 4, 2])).result()
    for row, length in enumerate([3, 1, 4, 2]):
        assert found.steps["seen"][row, :length].tolist() == [101 * row + step for step in range(length)]
    with pytest.raises(PolicyError, match=r"must return \(outputs, new_state\), found int"):
        FunctionalAgent(lambda *args: 3)(TensorDict(batch_size=[1]))  # type: ignore[arg-type, return-value]


def test_an_agent_keeps_the_state_of_a_recurrent_module() -> None:
    cell = nn.GRUCell(1, 4)

    class Module(nn.Module):
        def forward(self, t: Any, recurrent_state: Any) -> Any:
            h = cell(t.float(), recurrent_state)
            return h.argmax(-1) % 2, h.sum(-1), h

    module = TensorDictModule(Module(), ["t", "recurrent_state"], ["action", "score", ("next", "recurrent_state")])
    agent = Agent.from_module(module, {"recurrent_state": Unbounded((4,))})
    found = rollouts(SerialEnv(2, CountTo), agent, env_info=told([3, 5, 2]))
    for row, length in enumerate([3, 5, 2]):
        h = torch.zeros(1, 4)
        for step in range(length):
            h = cell(torch.tensor([[float(step)]]), h)
            assert torch.allclose(found.steps["score"][row, step], h.sum(), atol=1e-5)
    again = replay(agent, found, keys=["score"])["score"]
    assert torch.allclose(again[found.mask()], found.steps["score"][found.mask()], atol=1e-5)


def test_rollouts_leave_an_environment_of_the_caller_open() -> None:
    env = SerialEnv(2, CountTo)
    assert rollouts(env, env_info=told([2, 3, 1])).length.tolist() == [2, 3, 1]
    assert not env.is_closed
    assert rollouts("gym:Pendulum-v1", n_episodes=2, max_steps=3).length.tolist() == [3, 3]
    env.close()
