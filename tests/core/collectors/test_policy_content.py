"""Tensors and values of a policy are found, wherever it stores them."""

from __future__ import annotations

import functools
import operator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from tensordict import TensorDict
from tensordict.nn import TensorDictModule
from torch import nn

from steppe import RandomPolicy
from steppe.collectors.policy_content import PolicyContent, set_attributes
from steppe.errors import PolicyError
from steppe_testing import CountingEnv

shared_net = nn.Linear(2, 3)
shared_net.eps = 0.5  # type: ignore[assignment]
places = SimpleNamespace(net=nn.Linear(4, 1), rate=3)


def acts_with_a_global(td: Any) -> Any:
    return td.set("action", shared_net(td["observation"]))


def acts_through_another(td: Any) -> Any:
    return [acts_with_a_global(one) for one in td]


class Holder:
    """A callable object that is no module."""

    def __init__(self) -> None:
        self.net, self.table = nn.Linear(2, 2), torch.zeros(3)
        self.buffer = SimpleNamespace(storage=torch.zeros(10), net=nn.Linear(1, 1))
        self.eps, self._calls, self.name = 0.25, 0, "greedy"

    def __call__(self, td: Any) -> Any:
        return self.act(td)

    def act(self, td: Any) -> Any:
        return td


class Slotted:
    __slots__ = ("net",)

    def __init__(self) -> None:
        self.net = nn.Linear(2, 1)


class Shared:
    net = nn.Linear(3, 3)

    def __call__(self, td: Any) -> Any:
        return td


def over(net: nn.Module) -> Any:
    return lambda td: td.set("action", net(td["observation"]))


def names(policy: Any) -> set[str]:
    return set(PolicyContent(policy).tensors)


LINEAR = {"weight", "bias"}


def below(*prefixes: str) -> set[str]:
    return {f"{prefix}.{name}" for prefix in prefixes for name in LINEAR}


def with_default(td: Any, net: Any = shared_net, *, head: Any = places.net) -> Any:
    return td


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        (nn.Linear(2, 2), LINEAR),
        (nn.BatchNorm1d(3), LINEAR | {"running_mean", "running_var", "num_batches_tracked"}),
        (over(nn.Linear(2, 2)), below("net")),
        (with_default, below("net", "head")),
        (functools.partial(lambda net, td: td, nn.Linear(1, 1)), below("0")),
        (functools.partial(lambda td, net: td, net=nn.Linear(1, 1)), below("net")),
        (Holder(), below("net", "buffer.net") | {"table"}),
        (Holder().act, below("net", "buffer.net") | {"table"}),
        (Slotted(), below("net")),
        (Shared(), below("net")),
        (acts_with_a_global, below("shared_net")),
        (acts_through_another, below("acts_with_a_global.shared_net")),
        (lambda td: places.net(td), below("places.net")),
        (TensorDictModule(over(nn.Linear(2, 2)), ["observation"], ["action"]), below("module.net")),
        (nn.Linear(2, 2).forward, LINEAR),
        (functools.partial(over(nn.Linear(2, 2))), below("net")),
        ([nn.Linear(1, 1), {"a": nn.Linear(1, 1)}].__iter__, set()),
    ],
)
def test_tensors_are_found_wherever_a_policy_keeps_them(policy: Any, expected: set[str]) -> None:
    assert names(policy) == expected


def test_containers_and_parameters_are_looked_into() -> None:
    nets, weight = [nn.Linear(1, 1), {"left": nn.Linear(1, 1)}], torch.zeros(2, requires_grad=True)
    table, fixed = np.zeros((2, 2)), np.zeros(3)
    fixed.flags.writeable = False
    params = TensorDict({"a": torch.zeros(1), "b": {"c": torch.zeros(2)}})

    def act(td: Any) -> Any:
        return nets, weight, table, fixed, params

    assert names(act) == below("nets.0", "nets.1.left") | {"weight", "table", "params.a", "params.b.c"}
    PolicyContent(act).tensors["table"].fill_(2)
    assert (table == 2).all(), "a tensor of the same memory"


class AnswersEveryName:
    """An object like the proxies of remote procedure calls."""

    def __getattr__(self, name: str) -> AnswersEveryName:
        return AnswersEveryName()


def test_an_object_that_answers_every_name_is_searched_once() -> None:
    holder = Holder()
    holder.remote = AnswersEveryName()  # type: ignore[attr-defined]

    assert "net.weight" in PolicyContent(holder).tensors


def test_the_function_inside_a_cache_is_searched() -> None:
    net = nn.Linear(2, 2)
    cached = functools.lru_cache(functools.wraps(net.forward)(lambda td: net(td)))

    assert any(tensor is net.weight for tensor in PolicyContent(cached).tensors.values())
    holder = Holder()
    holder.helper = functools.lru_cache(functools.partial(over(net), table=torch.ones(2), scale=2.0))  # type: ignore[attr-defined]
    content = PolicyContent(holder)
    assert "helper.table" in content.tensors
    assert content.changed_since({})["helper.scale"] == 2.0


def test_a_tensor_in_two_places_is_one_by_several_names() -> None:
    net = nn.Linear(2, 2)
    other = net

    def act(td: Any) -> Any:
        return net, other, (net.weight,)

    content = PolicyContent(act)
    assert len(content.tensors) == 2
    assert content.by_name.get("other.weight", net.weight) is net.weight
    one, two = nn.Linear(1, 1), nn.Linear(1, 1)
    both = functools.partial(over(one), over(two))
    assert names(both) == below("net", "0.net")


def test_two_tensors_with_one_name_get_different_names() -> None:
    one, two = nn.Linear(1, 1), nn.Linear(1, 1)
    policy = over(one)
    policy.net = two  # an attribute of the function by the name of its variable
    content = PolicyContent(policy)
    assert set(content.tensors) == {"net.weight", "net.bias", "net.weight#2", "net.bias#2"}


@pytest.mark.parametrize(
    "policy",
    [
        None,
        lambda td: td.set("action", torch.ones(1)),
        RandomPolicy(CountingEnv().action_spec),
        functools.partial(operator.itemgetter("action")),
        CountingEnv().rand_action,
        torch.relu,
        np.tanh,
    ],
)
def test_an_empty_policy_has_no_unknown_content(policy: Any) -> None:
    content = PolicyContent(policy)
    assert not content.tensors
    assert not content.unknown


def test_unreadable_policy_content_is_named() -> None:
    import threading

    handle = threading.Lock()
    assert PolicyContent(lambda td: handle).unknown == ["handle"]
    many = list(range(5000))
    assert PolicyContent(lambda td: many).unknown == ["many"]


def test_values_that_changed_are_named() -> None:
    policy = Holder()
    before = PolicyContent(policy).values
    policy.eps, policy._calls, policy.net.training = 0.125, 9, False
    assert PolicyContent(policy).changed_since(before) == {"eps": 0.125}
    nan = Holder()
    nan.eps = float("nan")
    assert not PolicyContent(nan).changed_since(PolicyContent(nan).values)


def test_attributes_are_set_all_or_none() -> None:
    policy = Holder()
    set_attributes(policy, {"eps": 0.75, "buffer.net.in_features": 7})
    assert (policy.eps, policy.buffer.net.in_features) == (0.75, 7)
    set_attributes(policy.act, {"eps": 0.5})
    assert policy.eps == 0.5
    for wrong in ({"name": "soft", "epss": 1}, {"name": "soft", "buffer.nothing.eps": 1}):
        with pytest.raises(PolicyError, match=r"no attribute .*'eps'"):
            set_attributes(policy, wrong)
    with pytest.raises(PolicyError, match="does not take weight = 3"):
        set_attributes(policy, {"name": "soft", "net.weight": 3})
    assert policy.name == "greedy"


def test_an_attribute_of_a_module_inside_is_named_by_its_path() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.rate = 2

    policy = TensorDictModule(Net(), ["observation"], ["action"])
    with pytest.raises(PolicyError, match=r"no attribute 'rate' of its own.*'module\.rate'"):
        set_attributes(policy, {"rate": 3})
    set_attributes(policy, {"module.rate": 3})
    assert policy.module.rate == 3
