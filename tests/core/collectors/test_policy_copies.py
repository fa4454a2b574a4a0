"""Copies of a policy follow the changes of the caller's policy, or raise an error."""

from __future__ import annotations

import functools
import threading
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from tensordict import TensorDictBase
from tensordict.nn import TensorDictModule, TensorDictSequential
from torch import nn

from steppe import Collector, MultiaSyncDataCollector, MultiSyncDataCollector, RandomPolicy, aSyncDataCollector
from steppe.errors import PolicyError, WorkerError
from steppe_testing import CountingEnv


def env() -> CountingEnv:
    return CountingEnv(50, action="continuous")


def constant(value: float = 0.0) -> nn.Linear:
    """A net of one input whose two outputs are a number."""
    net = nn.Linear(1, 2)
    set_to(net, value)
    return net


def set_to(net: Any, value: float) -> None:
    with torch.no_grad():
        net.weight.zero_()
        net.bias.fill_(value)


module_net = constant(0.5)


def with_module_net(td: TensorDictBase) -> TensorDictBase:
    """A policy that is pickled by reference, so a worker uses its own net."""
    return td.set("action", module_net(td["observation"]))


class Held:
    """A callable object with a net, a table, and a rate."""

    def __init__(self) -> None:
        self.net, self.rate = constant(0.5), 1.0

    def act(self, td: TensorDictBase) -> TensorDictBase:
        return td.set("action", self.net(td["observation"]) * self.rate)

    __call__ = act


class Rated(nn.Module):
    """A module whose rate is a plain attribute."""

    def __init__(self) -> None:
        super().__init__()
        self.net, self.rate = constant(0.5), 1.0
        self.register_buffer("offset", torch.zeros(1), persistent=False)

    def forward(self, observation: torch.Tensor) -> torch.Tensor:
        return self.net(observation) * self.rate + self.offset


def closure() -> tuple[Any, Any]:
    net = constant(0.5)
    return lambda td: td.set("action", net(td["observation"])), net


def default() -> tuple[Any, Any]:
    net = constant(0.5)

    def act(td: Any, net: Any = net) -> Any:
        return td.set("action", net(td["observation"]))

    return act, net


def partial() -> tuple[Any, Any]:
    net = constant(0.5)
    return functools.partial(lambda td, net: td.set("action", net(td["observation"])), net=net), net


def held() -> tuple[Any, Any]:
    policy = Held()
    return policy, policy.net


def method() -> tuple[Any, Any]:
    policy = Held()
    return policy.act, policy.net


def around_a_lambda() -> tuple[Any, Any]:
    net = constant(0.5)
    return TensorDictModule(lambda observation: net(observation), ["observation"], ["action"]), net


def in_a_sequence() -> tuple[Any, Any]:
    net, other = constant(0.5), nn.Linear(1, 1)
    return TensorDictSequential(
        TensorDictModule(other, ["observation"], ["other"]),
        TensorDictModule(lambda observation: net(observation), ["observation"], ["action"]),
    ), net


def by_name() -> tuple[Any, Any]:
    return with_module_net, module_net


FORMS = [closure, default, partial, held, method, around_a_lambda, in_a_sequence, by_name]
KINDS: dict[str, Callable[..., Any]] = {
    "sync": lambda policy, **kwargs: MultiSyncDataCollector([env] * 2, policy, frames_per_batch=8, **kwargs),
    "async": lambda policy, **kwargs: MultiaSyncDataCollector([env], policy, frames_per_batch=4, **kwargs),
    "one async": lambda policy, **kwargs: aSyncDataCollector(env, policy, frames_per_batch=4, **kwargs),
    "collector": lambda policy, **kwargs: Collector(env, policy, frames_per_batch=8, num_workers=2, **kwargs),
    "in process": lambda policy, **kwargs: Collector(env, policy, frames_per_batch=8, **kwargs),
}


def actions(collector: Any, version: int) -> list[float]:
    """The actions of the first batch that was made with a version of the policy."""
    for _ in range(20):
        batch = next(collector)
        if int(batch["collector", "policy_version"].min()) >= version:
            return batch["action"].unique().tolist()
    raise AssertionError(f"no batch of version {version}")


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.__name__)
def test_new_weights_reach_workers_wherever_a_policy_has_them(form: Any) -> None:
    policy, net = form()
    set_to(net, 0.25)
    with KINDS["sync"](policy, trust_policy=True) as collector:
        assert actions(collector, 0) == [0.25]
        set_to(net, 0.75)
        collector.update_policy_weights_()
        assert actions(collector, 1) == [0.75]
        learner = constant(-0.5)
        collector.update_policy_weights_(learner)
        assert actions(collector, 2) == [-0.5], "those of a part of the policy"
        result = collector.execute(n_steps=3).result()
        assert result.steps["action"].unique().tolist() == [-0.5]
        state = collector.state_dict()
    with KINDS["sync"](form()[0], trust_policy=True) as other:
        other.load_state_dict(state)
        assert actions(other, 0) == [-0.5]
    set_to(module_net, 0.5)


@pytest.mark.parametrize("kind", KINDS)
def test_new_weights_reach_every_kind_of_collector(kind: str) -> None:
    for form in (closure, around_a_lambda):
        policy, net = form()
        with KINDS[kind](policy) as collector:
            assert actions(collector, 0) == [0.5]
            set_to(net, 2.0)
            collector.update_policy_weights_()
            assert actions(collector, 1) == [2.0]
            collector.update_policy_weights_(weights={"weight": torch.zeros(2, 1), "bias": torch.full((2,), 3.0)})
            assert actions(collector, 2) == [3.0]


def test_a_function_gets_new_weights_for_each_batch() -> None:
    policy, net = closure()
    with KINDS["sync"](policy, update_at_each_batch=True) as collector:
        for value in (0.5, 1.0, 4.0):
            set_to(net, value)
            assert next(collector)["action"].unique().tolist() == [value]
    with pytest.raises(PolicyError, match="policy_factory"):
        KINDS["sync"](None, policy_factory=lambda: closure()[0], update_at_each_batch=True)


def test_arrays_and_tensors_of_a_function_are_weights() -> None:
    table, row = np.zeros((2, 2), np.float32), torch.zeros(2)
    weight = torch.ones(2, requires_grad=True)

    def act(td: TensorDictBase) -> TensorDictBase:
        return td.set("action", (torch.from_numpy(table[1]) + row) * weight.detach())

    with KINDS["sync"](act) as collector:
        assert actions(collector, 0) == [0.0]
        table[1], row[0] = 2.0, 1.0
        collector.update_policy_weights_()
        assert actions(collector, 1) == [2.0, 3.0]


def opaque() -> Any:
    lock = threading.get_ident  # a builtin: nothing to see
    hidden = object()

    def act(td: TensorDictBase) -> TensorDictBase:
        return td.set("action", torch.zeros(2) if hidden and lock else None)

    return act


def plain(td: TensorDictBase) -> TensorDictBase:
    return td.set("action", torch.ones(2))


def test_an_update_without_weights_raises_and_is_not_counted() -> None:
    with KINDS["sync"](opaque()) as collector:
        with pytest.raises(
            PolicyError, match=r"no parameters were found.*\['hidden'\].*policy=module.*policy_factory="
        ):
            collector.update_policy_weights_()
        with pytest.raises(PolicyError, match="without parameters"):
            collector.update_policy_weights_(weights=constant())
        assert collector.policy_version == 0
    for factory in (lambda: closure()[0], lambda: plain):
        with KINDS["sync"](None, policy_factory=factory) as collector:
            with pytest.raises(PolicyError, match="policy_factory"):
                collector.update_policy_weights_()
            assert collector.policy_version == 0


def test_a_policy_that_a_factory_makes_takes_weights() -> None:
    with KINDS["sync"](None, policy_factory=lambda: closure()[0]) as collector:
        assert actions(collector, 0) == [0.5]
        collector.update_policy_weights_(constant(7.0))
        assert actions(collector, 1) == [7.0]


def test_buffers_of_a_factory_s_policy_stay_as_they_are() -> None:
    def make() -> Any:
        policy = Rated()
        policy.offset.fill_(3.0)
        return TensorDictModule(policy, ["observation"], ["action"])

    with KINDS["sync"](None, policy_factory=make) as collector:
        assert actions(collector, 0) == [3.5]
        collector.update_policy_weights_({"module.net.bias": torch.full((2,), 1.0)})
        assert actions(collector, 1) == [4.0]


@pytest.mark.parametrize("policy", [None, plain, RandomPolicy(env().action_spec)], ids=["none", "plain", "random"])
@pytest.mark.parametrize("kind", ["sync", "in process"])
def test_updating_a_policy_without_content_only_counts(policy: Any, kind: str) -> None:
    with warnings.catch_warnings(), KINDS[kind](policy) as collector:
        warnings.simplefilter("error")
        collector.update_policy_weights_()
        assert collector.policy_version == 1


def rated() -> tuple[Any, str]:
    return TensorDictModule(Rated(), ["observation"], ["action"]), "module.rate"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("form", [rated, lambda: (Held(), "rate"), lambda: (Held().act, "rate")])
def test_attributes_reach_every_copy_before_its_next_batch(kind: str, form: Any) -> None:
    policy, path = form()
    with KINDS[kind](policy) as collector:
        assert actions(collector, 0) == [0.5]
        collector.update_policy_weights_(attributes={path: 4.0})
        assert actions(collector, 1) == [2.0]
        owner = getattr(policy, "__self__", getattr(policy, "module", policy))
        assert owner.rate == 4.0, "the caller's too"
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            collector.update_policy_weights_()
        with pytest.raises(PolicyError, match="no attribute 'nothing'"):
            collector.update_policy_weights_(attributes={"nothing": 1})
        assert collector.policy_version == 2


def test_weights_and_attributes_come_together_or_not_at_all() -> None:
    policy, path = rated()
    with KINDS["sync"](policy) as collector:
        collector.update_policy_weights_(constant(0.25), attributes={path: 3.0})
        assert actions(collector, 1) == [0.75]
        for weights, attributes in ((nn.Linear(5, 5), {path: 9.0}), (constant(9.0), {"nothing": 1})):
            with pytest.raises(PolicyError):
                collector.update_policy_weights_(weights, attributes=attributes)
        assert collector.policy_version == 1
        assert next(collector)["action"].unique().tolist() == [0.75]


def test_attributes_reach_requests_and_policies_of_a_factory() -> None:
    with KINDS["collector"](Held()) as collector:
        job = collector.execute(n_episodes=8)
        collector.update_policy_weights_(attributes={"rate": 2.0})
        assert job.result().flat()["action"].unique().tolist() == [0.5], "as it was when the request began"
        assert collector.execute(n_episodes=2).result().flat()["action"].unique().tolist() == [1.0]
    with KINDS["collector"](None, policy_factory=Held) as collector:
        collector.update_policy_weights_(attributes={"rate": 3.0})
        assert collector.execute(n_steps=2).result().steps["action"].unique().tolist() == [1.5]
        assert next(collector)["action"].unique().tolist() == [1.5]
        with pytest.raises(WorkerError, match="no attribute 'ratte'"):
            collector.update_policy_weights_(attributes={"ratte": 3.0})
        with pytest.raises(PolicyError, match="room for"):
            collector.update_policy_weights_(attributes={"rate": "long" * 9000})
        assert next(collector)["action"].unique().tolist() == [1.5]
    with KINDS["sync"](None) as collector, pytest.raises(PolicyError, match="Random actions have no attributes"):
        collector.update_policy_weights_(attributes={"rate": 3.0})


def test_a_changed_attribute_that_is_not_sent_warns() -> None:
    policy, _ = rated()
    with KINDS["sync"](policy) as collector:
        policy.module.rate = 5.0
        with pytest.warns(UserWarning, match=r"attributes=\{'module\.rate': 5\.0\}"):
            collector.update_policy_weights_()
        policy.module.rate = 6.0
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            collector.update_policy_weights_()  # once is enough
            collector.update_policy_weights_(attributes={"module.rate": 6.0})
        policy.module.rate = 7.0
        with pytest.warns(UserWarning, match=r"attributes=\{'module\.rate': 7\.0\}"):
            collector.update_policy_weights_()
    rate_alone = RateAlone()
    with KINDS["sync"](rate_alone) as collector:
        collector.update_policy_weights_()
        rate_alone.rate = 5.0
        with pytest.raises(PolicyError, match=r"attributes=\{'rate': 5\.0\}"):
            collector.update_policy_weights_()
        collector.update_policy_weights_(attributes={"rate": 5.0})
        assert actions(collector, 2) == [5.0]
        collector.update_policy_weights_()


class RateAlone:
    """Nothing but a number."""

    def __init__(self) -> None:
        self.rate = 1.0

    def __call__(self, td: TensorDictBase) -> TensorDictBase:
        return td.set("action", torch.full((2,), self.rate))


@pytest.mark.filterwarnings("ignore:for module")  # torch, about the meta device
def test_a_copy_on_another_device_is_brought_up_to_date() -> None:
    policy, path = rated()
    # The fake batch alone acts on the meta device: no GPU is needed to look at the copy.
    with Collector(env, policy, frames_per_batch=4, policy_device="meta", trust_policy=True) as collector:
        copied = collector.policy
        assert copied is not policy
        collector.update_policy_weights_(attributes={path: 2.0})
        assert (copied.module.rate, policy.module.rate) == (2.0, 2.0)
        policy.module.rate = 3.0
        with pytest.warns(UserWarning, match=r"module\.rate"):
            collector.update_policy_weights_()


def test_non_persistent_buffers_are_copied() -> None:
    from steppe.collectors.weights import Weights

    policy, _ = rated()
    acting, _ = rated()
    weights = Weights(acting, None)
    policy.module.offset.fill_(4.0)
    set_to(policy.module.net, 1.5)
    weights.update(policy)
    assert acting.module.offset.item() == 4.0
    assert acting.module.net.bias.tolist() == [1.5, 1.5]


def test_weights_that_fit_several_parts_are_refused() -> None:
    left, right = constant(0.0), constant(1.0)

    def act(td: TensorDictBase) -> TensorDictBase:
        return td.set("action", left(td["observation"]) + right(td["observation"]))

    with Collector(env, act, frames_per_batch=4) as collector:
        with pytest.raises(PolicyError, match=r"fit several parts of the policy, \['left', 'right'\]"):
            collector.update_policy_weights_(constant(3.0))
        collector.update_policy_weights_({"left.bias": torch.full((2,), 5.0)})
        assert actions(collector, 1) == [6.0]
