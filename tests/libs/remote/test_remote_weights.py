"""Weights of a policy that workers get with messages."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from steppe.collectors import Field
from steppe.errors import PolicyError
from steppe_remote import ReceivedWeights, RemoteWeights

FIELDS = [Field(("weight",), (1, 2), torch.float32), Field(("bias",), (1,), torch.float32)]


def published() -> tuple[RemoteWeights, list[dict[str, torch.Tensor]]]:
    stored: list[dict[str, torch.Tensor]] = []

    def publish(values: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        stored.append(values)
        return values

    return RemoteWeights(FIELDS, nn.Linear(2, 1), publish), stored


def test_each_version_is_stored_once() -> None:
    weights, stored = published()
    for _ in range(3):
        weights.write(nn.Linear(2, 1))

    assert (weights.version, len(stored)) == (3, 4)


def test_an_update_of_one_tensor_publishes_all_of_them() -> None:
    weights, stored = published()
    weights.write({"bias": torch.full((1,), 7.0)})

    assert stored[1]["bias"].item() == 7.0
    assert torch.equal(stored[1]["weight"], stored[0]["weight"])


def test_wrong_weights_change_nothing() -> None:
    weights, stored = published()
    with pytest.raises(PolicyError, match="has shape"):
        weights.write({"bias": torch.zeros(3)})

    assert (weights.version, len(stored)) == (0, 1)


def test_a_worker_applies_what_it_has_missed() -> None:
    class Policy(nn.Linear):
        eps: Any = 1.0
        name = "first"

    weights, _ = published()
    weights.write(attributes={"eps": 0.5})
    weights.write({"bias": torch.full((1,), 7.0)}, {"name": "second"})
    policy, received = Policy(2, 1), ReceivedWeights()
    received.newest = weights.published

    assert received.read_into(policy, 0) == 2
    assert (policy.eps, policy.name, policy.bias.item()) == (0.5, "second", 7.0)

    policy.eps = 3.0
    weights.write(nn.Linear(2, 1))
    received.newest = weights.published
    received.read_into(policy, 2)
    assert policy.eps == 3.0, "an attribute is set once"
