"""Weights in shared memory: all kinds of tensors, and never half of one version and half of another."""

from __future__ import annotations

import copy
import os
import threading
from typing import Any

import pytest
import torch
from tensordict import TensorDict
from torch import nn

from steppe.collectors.shared_weights import SharedWeights
from steppe.collectors.weights import fields_of
from steppe.errors import PolicyError
from tests.limits import CHILD


class Net(nn.Module):
    """Tied parameters, buffers, other dtypes, a scalar."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(3, 3)
        self.tied = nn.Linear(3, 3)
        self.tied.weight = self.first.weight
        self.half = nn.Linear(2, 5).to(torch.bfloat16)
        self.norm = nn.BatchNorm1d(3)
        self.scale = nn.Parameter(torch.tensor(2.0))
        self.register_buffer("mask", torch.tensor([True, False]), persistent=False)


def seen(weights: SharedWeights) -> SharedWeights:
    return SharedWeights(weights.fields, os.dup(weights.fd))


def changed(net: nn.Module) -> nn.Module:
    other = copy.deepcopy(net)
    for tensor in (*other.parameters(), *other.buffers()):
        tensor.data = (tensor + 1).to(tensor.dtype)
    return other


def assert_same(one: nn.Module, other: nn.Module) -> None:
    names = {**dict(one.named_parameters()), **dict(one.named_buffers())}
    others = {**dict(other.named_parameters()), **dict(other.named_buffers())}
    for name, tensor in names.items():
        assert torch.equal(tensor, others[name]), name


@pytest.mark.parametrize("form", ["module", "state dict", "tensordict"])
def test_weights_written_here_are_read_there(form: str) -> None:
    net = Net()
    weights = SharedWeights(fields_of(net))
    new = changed(net)
    new.mask.copy_(net.mask)  # no part of a state dict
    given: Any = {"module": new, "state dict": new.state_dict(), "tensordict": TensorDict.from_module(new).detach()}[
        form
    ]
    weights.write(net)
    assert weights.write(given) == 2
    assert seen(weights).read_into(net, 0) == 2
    assert_same(net, new)
    assert net.tied.weight is net.first.weight


def test_unnamed_weights_stay_unchanged() -> None:
    net = Net()
    weights = SharedWeights(fields_of(net))
    weights.fill(net)
    weights.write({"scale": torch.tensor(7.0)})
    weights.write()
    other = changed(net)
    seen(weights).read_into(other, 0)
    with torch.no_grad():
        net.scale.fill_(7)
    assert_same(net, other)


def test_a_copy_of_a_state_dict_may_name_tied_weights_twice() -> None:
    net = Net()
    weights = SharedWeights(fields_of(net))
    weights.fill(net)  # a buffer is in no state dict
    weights.write({name: value.clone() for name, value in net.state_dict().items()})
    other = changed(net)
    seen(weights).read_into(other, 0)
    assert_same(net, other)


def test_a_reader_that_has_the_version_reads_nothing() -> None:
    net = Net()
    weights = SharedWeights(fields_of(net))
    version = weights.write(net)
    other = changed(net)
    assert seen(weights).read_into(other, version) == version
    assert not torch.equal(other.scale, net.scale)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"scale": torch.zeros(2)}, r"'scale' has shape \(\), found \(2,\)"),
        ({"nothing": torch.zeros(2)}, "found \\['nothing'\\]"),
        ({"scale": torch.zeros(()), "nothing": torch.zeros(2)}, "found \\['nothing'\\]"),
        (3, "found int"),
    ],
)
def test_weights_that_do_not_fit_are_refused_and_not_written(given: Any, said: str) -> None:
    weights = SharedWeights(fields_of(Net()))
    with pytest.raises(PolicyError, match=said):
        weights.write(given)
    assert weights.version == 0


def test_a_read_never_mixes_versions() -> None:
    net = nn.Linear(300, 300)
    weights = SharedWeights(fields_of(net))
    other = seen(weights)
    stop = threading.Event()

    def write() -> None:
        number = 0
        while not stop.is_set():
            number += 1
            weights.write({name: torch.full_like(value, number) for name, value in net.state_dict().items()})

    writer = threading.Thread(target=write)
    writer.start()
    try:
        version, torn = 0, 0
        while version < 200:
            version = other.read_into(net, version)
            values = {float(value) for tensor in net.state_dict().values() for value in (tensor.min(), tensor.max())}
            torn += bool(version) and values != {float(version)}
    finally:
        stop.set()
        writer.join(CHILD)
    assert torn == 0
