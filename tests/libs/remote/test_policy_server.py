"""A policy that is served in one place to clients in threads and processes."""

from __future__ import annotations

import pickle
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Client
from typing import Any

import pytest
import torch
from tensordict import TensorDict, TensorDictBase
from tensordict.nn import TensorDictModule
from torch import nn

from steppe import Composite, Unbounded
from steppe.errors import ClosedError, NotSupported, PolicyError, SpecError
from steppe_remote import PolicyServer
from tests.limits import AT_ONCE


class Counted(nn.Module):
    """Add a weight to the observation, and remember the rows of each call."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.tensor(1.0))
        self.offset = 0.0
        self.rows: list[int] = []

    def forward(self, observation: torch.Tensor) -> torch.Tensor:
        self.rows.append(len(observation))
        return observation + self.weight + self.offset


def policy() -> TensorDictModule:
    return TensorDictModule(Counted(), ["observation"], ["action"])


def root(value: float, *batch: int) -> TensorDictBase:
    return TensorDict(observation=torch.full((*batch, 2), value), batch_size=list(batch))


def asked_together(server: PolicyServer, values: list[float]) -> list[TensorDictBase]:
    """Let one client for each value call, all at the same time."""
    clients = [server.client() for _ in values]
    for client in clients:
        client(root(0.0, 1))  # connects
    ready = threading.Barrier(len(values))

    def ask(client: Any, value: float) -> TensorDictBase:
        ready.wait(AT_ONCE)
        return client(root(value, 1))

    with ThreadPoolExecutor(len(values)) as threads:
        return list(threads.map(ask, clients, values))


def test_calls_that_come_together_are_one_call() -> None:
    server = PolicyServer(policy(), server_timeout=AT_ONCE)
    clients = [server.client() for _ in range(4)]
    with ThreadPoolExecutor(4) as threads:
        # None of them is alone for long: the first call waits until the others have connected and called, too.
        list(threads.map(lambda client: client(root(0.0, 1)), clients))
        before = server.stats()["calls"]
        answers = list(threads.map(lambda each: each[1](root(float(each[0]), 1)), enumerate(clients)))
        calls = server.stats()["calls"] - before
    server.shutdown()

    assert [answer["action"].unique().item() for answer in answers] == [1.0, 2.0, 3.0, 4.0]
    assert calls == 1


def test_a_call_has_at_most_the_largest_number_of_rows() -> None:
    server = PolicyServer(policy(), max_batch_size=2, server_timeout=0.2)
    answers = asked_together(server, [0.0, 1.0, 2.0, 3.0, 4.0])
    rows = server.policy.module.rows
    server.shutdown()

    assert [answer["action"].unique().item() for answer in answers] == [1.0, 2.0, 3.0, 4.0, 5.0]
    assert max(rows) == 2


def test_a_call_waits_for_others_no_longer_than_the_limit() -> None:
    server = PolicyServer(policy(), server_timeout=0.05)
    idle, client = server.client(), server.client()
    with ThreadPoolExecutor(2) as threads:
        list(threads.map(lambda each: each(root(0.0, 1)), (idle, client)))
    begun = time.monotonic()
    client(root(0.0, 1))
    took = time.monotonic() - begun
    server.shutdown()

    assert 0.04 < took < AT_ONCE


def test_a_call_waits_as_long_as_calls_take_by_default() -> None:
    def act(observation: torch.Tensor) -> torch.Tensor:
        time.sleep(0.1)
        return observation

    server = PolicyServer(TensorDictModule(act, ["observation"], ["action"]))
    idle = server.client()
    for _ in range(8):
        idle(root(0.0, 1))
    before = server.stats()["calls"]
    asked_together(server, [1.0, 2.0])
    calls = server.stats()["calls"] - before
    server.shutdown()

    # Both connect with a call, which may be one; their next calls are one, although a third client does not call.
    assert calls in (2, 3)


@pytest.mark.parametrize("batch", [(), (3,), (2, 2)])
def test_roots_of_any_batch_size_are_answered(batch: tuple[int, ...]) -> None:
    server = PolicyServer(policy())
    answer = server.client()(root(1.0, *batch))
    server.shutdown()

    assert answer["action"].shape == (*batch, 2)
    assert answer["action"].eq(2.0).all()


@pytest.mark.parametrize("batch", [(), (3,), (2, 2)])
def test_the_server_answers_entries_without_own_dimensions(batch: tuple[int, ...]) -> None:
    server = PolicyServer(TensorDictModule(lambda observation: observation.sum(-1), ["observation"], ["action"]))
    answer = server.client()(root(1.0, *batch))
    server.shutdown()

    assert answer["action"].shape == batch
    assert answer["action"].eq(2.0).all()


def test_weights_and_attributes_act_with_the_next_call() -> None:
    acting = policy()
    server = PolicyServer(acting)
    client = server.client()
    with torch.no_grad():
        acting.module.weight.fill_(5.0)
    unchanged = client(root(0.0, 1))["action"].unique().item()
    server.update_weights(attributes={"module.offset": 10.0})
    changed = client(root(0.0, 1))["action"].unique().item()
    with pytest.raises(PolicyError, match="do not fit"):
        server.update_weights({"module.weight": torch.zeros(3)})
    server.shutdown()

    assert (unchanged, changed, server.version) == (1.0, 15.0, 1)


def test_the_error_of_the_policy_reaches_its_clients_alone() -> None:
    def stuck(observation: torch.Tensor) -> torch.Tensor:
        if (observation < 0).any():
            raise ValueError("negative")
        return observation

    server = PolicyServer(TensorDictModule(stuck, ["observation"], ["action"]))
    client = server.client()
    with pytest.raises(PolicyError, match=r"(?s)which is served, raised ValueError: negative.*in stuck"):
        client(root(-1.0, 1))
    assert client(root(1.0, 1))["action"].eq(1.0).all()
    server.shutdown()


def test_a_client_of_an_ended_server_gets_an_error() -> None:
    server = PolicyServer(policy())
    client, late = server.client(), pickle.loads(pickle.dumps(server.client()))
    client(root(0.0, 1))
    server.shutdown()
    server.shutdown()

    with pytest.raises(PolicyError, match="The policy server has ended"):
        client(root(0.0, 1))
    with pytest.raises(PolicyError, match=r"No policy server answers.*inference='worker'"):
        late(root(0.0, 1))
    with pytest.raises(ClosedError, match="shut down: make a new one"):
        server.client()


def test_a_server_that_is_dropped_leaves_no_thread() -> None:
    before = threading.active_count()
    server = PolicyServer(policy())
    server.client()(root(0.0, 1))
    assert threading.active_count() > before
    del server

    assert threading.active_count() == before


def test_connections_without_the_key_are_refused() -> None:
    server = PolicyServer(policy(), host="127.0.0.1")
    address = server.client()
    host, port = pickle.loads(bytes.fromhex(address._server))[0]
    with pytest.raises(Exception, match="digest"):
        Client((host, port), authkey=b"another")

    assert address(root(0.0, 1))["action"].eq(1.0).all()
    server.shutdown()


def test_policies_that_cannot_be_served_are_refused() -> None:
    stateful, uncopied = policy(), policy()
    stateful.agent_state_spec = Composite(hidden=Unbounded((3,)))
    uncopied.made_by = (number for number in range(3))

    with pytest.raises(SpecError, match="max_batch_size must be a whole number >= 1, found 0"):
        PolicyServer(policy(), max_batch_size=0)
    with pytest.raises(SpecError, match="server_timeout must be None or seconds >= 0"):
        PolicyServer(policy(), server_timeout=-1.0)
    with pytest.raises(NotSupported, match=r"declares agent_state_spec.*inference='worker'"):
        PolicyServer(stateful)
    with pytest.raises(PolicyError, match=r"cannot be copied: TypeError.*generator"):
        PolicyServer(uncopied)
