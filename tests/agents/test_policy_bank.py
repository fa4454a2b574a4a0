"""Many policies over many environments in one request."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tensordict import TensorDict
from tensordict.nn import TensorDictModule

from steppe import (
    Collector,
    PolicyBank,
)
from steppe.errors import InfoError, PolicyError
from steppe_testing import assert_equal_data
from tests.core.collectors.counters_and_walks import (
    UniformAgent,
    counters,
    echo,
    make,
    told,
)


class Net(torch.nn.Module):
    """A net that records its inputs."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.net = torch.nn.Linear(1, 2)
        self.seen: list[list[int]] = []

    def forward(self, t: torch.Tensor, env_id: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        self.seen.append(env_id.flatten().tolist())
        logits = self.net(t.float())
        return logits.argmax(-1), logits


def net(seed: int) -> TensorDictModule:
    return TensorDictModule(Net(seed), ["t", "env_id"], ["action", "logits"])


@pytest.mark.parametrize("workers", [0, 2])
def test_each_row_uses_its_requested_policy(workers: int) -> None:
    asked = torch.tensor([7, 2, 5, 5, 2, 7, 7, 5, 2, 2, 5, 7])
    bank = PolicyBank({number: net(number) for number in (2, 5, 7)})
    with make(workers, lambda: counters(12 if not workers else 3), bank) as collector:
        for number in (2, 5, 7):
            bank.policies[number].module.seen.clear()
        collector.execute(agent_info={"policy_id": asked}, env_info=told([4] * 12))
        found = collector.get()
        with pytest.raises(InfoError, match="policy_id"):
            collector.execute(env_info=told([4] * 12))
    for number in (2, 5, 7):
        rows = (asked == number).nonzero().flatten()
        with Collector(lambda: counters(12), net(number)) as alone:
            alone.execute(env_info=told([4] * 12))
            expected = alone.get()
        assert_equal_data(found.steps[rows], expected.steps[rows])
        if not workers:
            assert bank.policies[number].module.seen == [rows.tolist()] * 4, "once a step, with its rows"


def test_a_policy_that_is_not_in_the_bank_is_named() -> None:
    with Collector(lambda: counters(2), PolicyBank({3: net(3)})) as collector:
        collector.execute(agent_info={"policy_id": torch.tensor([3, 4])}, env_info=told([4, 4]))
        with pytest.raises(KeyError, match=r"policy_id \[4\], but the PolicyBank has \[3\]"):
            collector.get()


def test_agents_of_a_bank_remember_their_own() -> None:
    class Late(UniformAgent):
        def initial_state(self, tensordict: Any) -> Any:
            return super().initial_state(tensordict).apply(lambda value: value + 100)

    bank = PolicyBank({0: UniformAgent(), 1: Late()})
    infos = TensorDict({"policy_id": torch.tensor([1, 0]), "agent_id": torch.tensor([8, 9])}, [2])
    with Collector(lambda: counters(2), bank) as collector:
        collector.execute(agent_info=infos, env_info=told([3, 2]))
        found = collector.get()
    assert found.agent_state["timestep"].tolist() == [100, 0]
    assert found.steps["agent_id"][:, 0].tolist() == [8, 9]


def test_policies_of_a_bank_write_the_same_entries() -> None:
    bank = PolicyBank({0: net(0), 1: echo})
    with Collector(lambda: counters(2), bank) as collector:
        collector.execute(agent_info={"policy_id": torch.tensor([0, 1])}, env_info=told([3, 2]))
        with pytest.raises(PolicyError, match="write the same entries, but policy 1 writes"):
            collector.get()
    with pytest.raises(PolicyError, match="at least one policy"):
        PolicyBank({})


def linear(seed: int, slope: float = 0.01) -> TensorDictModule:
    torch.manual_seed(seed)
    layers = torch.nn.Linear(3, 5), torch.nn.LeakyReLU(slope), torch.nn.Linear(5, 2)
    return TensorDictModule(torch.nn.Sequential(*layers), ["observation"], ["action"])


def test_policies_of_equal_structure_are_evaluated_at_once() -> None:
    members = {7: linear(1), 3: linear(2), 4: linear(3)}
    bank = PolicyBank(members)
    numbers = torch.tensor([4, 7, 7, 3, 7])
    td = TensorDict({"observation": torch.randn(5, 3), "agent_info": {"policy_id": numbers}}, [5])
    alone = torch.stack([members[int(number)](row.clone())["action"] for number, row in zip(numbers, td, strict=True)])
    assert bank.is_stacked
    torch.testing.assert_close(bank(td.clone())["action"], alone)
    with torch.no_grad():
        torch.testing.assert_close(bank(td.clone())["action"], alone)
        members[7].module[2].bias += 2  # the stacked parameters follow a change
        changed = bank(td.clone())["action"]
    torch.testing.assert_close(changed - alone, 2.0 * (numbers == 7).unsqueeze(-1).expand(5, 2))
    bank(td.clone())["action"].sum().backward()
    assert members[3].module[0].weight.grad.abs().sum() > 0


@pytest.mark.parametrize("other", [linear(2, slope=0.5), net(2), lambda td: td])
def test_policies_that_differ_in_more_are_called_alone(other: Any) -> None:
    assert not PolicyBank({0: linear(1), 1: other}).is_stacked


def test_a_bank_takes_names() -> None:
    bank = PolicyBank({"old": linear(1), "new": linear(2)})
    assert bank.select(["new", "old", "new"])["policy_id"].tolist() == [1, 0, 1]
    with pytest.raises(InfoError, match=r"no policy 'next', but \['old', 'new'\]"):
        bank.select(["next"])
    with pytest.raises(PolicyError, match="numbers or names"):
        PolicyBank({"a": echo, 2: echo})  # type: ignore[dict-item]
