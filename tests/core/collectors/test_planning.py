"""The planned call of a policy returns the same as the policy."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tensordict import TensorDict
from tensordict.nn import (
    NormalParamExtractor,
    ProbabilisticTensorDictModule,
    ProbabilisticTensorDictSequential,
    TensorDictModule,
    TensorDictSequential,
)
from torch import distributions, nn

from steppe import Collector, ExplorationType, set_exploration_type
from steppe.collectors.planning import planned
from steppe_testing import CountingEnv, assert_equal_data

RANDOM = ExplorationType.RANDOM


@pytest.fixture
def validated(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let distributions validate their parameters, which is torch's default."""
    monkeypatch.setattr(distributions.Distribution, "_validate_args", True)


def data() -> TensorDict:
    return TensorDict({"observation": torch.linspace(-1, 1, 12).reshape(3, 4)}, [3])


def net(width: int = 2) -> nn.Module:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, width))


def independent(loc: torch.Tensor, scale: torch.Tensor) -> Any:
    return distributions.Independent(distributions.Normal(loc, scale), 1)


def actor(distribution: Any, keys: Any = ("logits",), body: Any = None, **kwargs: Any) -> Any:
    return ProbabilisticTensorDictSequential(
        TensorDictModule(body if body is not None else net(), ["observation"], list(keys)),
        ProbabilisticTensorDictModule(list(keys), ["action"], distribution_class=distribution, **kwargs),
    )


def loc_scale() -> nn.Module:
    return nn.Sequential(net(4), NormalParamExtractor())


POLICIES = {
    "module": lambda: TensorDictModule(net(), ["observation"], ["action"]),
    "two outputs": lambda: TensorDictModule(lambda x: (x + 1, x * 2), ["observation"], ["a", "action"]),
    "an output that is dropped": lambda: TensorDictModule(lambda x: (x, x * 2), ["observation"], ["_", "action"]),
    "sequence": lambda: TensorDictSequential(
        TensorDictModule(net(4), ["observation"], ["h"]), TensorDictModule(net(), ["h"], ["action"])
    ),
    "categorical": lambda: actor(distributions.Categorical, return_log_prob=True),
    "categorical of probabilities": lambda: actor(
        distributions.Categorical, ["probs"], nn.Sequential(net(), nn.Softmax(-1)), return_log_prob=True
    ),
    "one-hot": lambda: actor(distributions.OneHotCategorical, return_log_prob=True),
    "normal": lambda: actor(distributions.Normal, ["loc", "scale"], loc_scale(), return_log_prob=True),
    "normal without log-probability": lambda: actor(distributions.Normal, ["loc", "scale"], loc_scale()),
    "a function that makes a distribution": lambda: actor(
        independent, ["loc", "scale"], loc_scale(), return_log_prob=True
    ),
    "arguments of the distribution": lambda: actor(
        distributions.RelaxedOneHotCategorical, distribution_kwargs={"temperature": torch.tensor(0.5)}
    ),
    "arguments by name": lambda: TensorDictModule(lambda *, x: x + 1, {"x": "observation"}, ["action"]),
    "nested keys": lambda: TensorDictModule(lambda x: x + 1, ["observation"], [("agents", "action")]),
}


@pytest.mark.parametrize("kind", [RANDOM, ExplorationType.DETERMINISTIC, ExplorationType.MODE])
@pytest.mark.parametrize("name", POLICIES)
def test_a_planned_call_writes_what_the_policy_writes(name: str, kind: Any) -> None:
    policy = POLICIES[name]()
    if kind is ExplorationType.MODE and "argument" in name + "s":
        pytest.skip("relaxed distributions have no mode")
    act = planned(policy)
    with torch.no_grad(), set_exploration_type(kind):
        torch.manual_seed(3)
        expected = policy(data())
        torch.manual_seed(3)
        found = data()
        assert act(found) is found
    assert_equal_data(found, expected)


def test_known_kinds_are_called_without_their_modules(monkeypatch: pytest.MonkeyPatch) -> None:
    policy = POLICIES["categorical"]()
    act = planned(policy)
    called: list[str] = []
    for kind in (TensorDictModule, ProbabilisticTensorDictModule):
        monkeypatch.setattr(kind, "forward", lambda self, *args, **kwargs: called.append("forward"))
    with torch.no_grad(), set_exploration_type(RANDOM):
        assert act(data())["action"].shape == (3,)
    assert called == []


def test_hooks_and_overridden_forwards_are_called() -> None:
    seen: list[str] = []
    hooked = POLICIES["categorical"]()
    hooked[0].register_forward_hook(lambda *args: seen.append("hook"))

    class Mine(TensorDictModule):
        def forward(self, tensordict: Any, **kwargs: Any) -> Any:
            seen.append("forward")
            return super().forward(tensordict, **kwargs)

    own = TensorDictSequential(Mine(net(), ["observation"], ["h"]), TensorDictModule(lambda x: x, ["h"], ["action"]))
    inner = net()
    inner.register_forward_hook(lambda *args: seen.append("inner"))
    patched = POLICIES["module"]()
    patched.forward = lambda tensordict: seen.append("patched") or tensordict  # type: ignore[method-assign]
    with torch.no_grad(), set_exploration_type(RANDOM):
        for policy in (hooked, own, TensorDictModule(inner, ["observation"], ["action"]), patched):
            planned(policy)(data())
    assert seen == ["hook", "forward", "inner", "patched"]


def test_selected_outputs_are_the_only_ones() -> None:
    policy = TensorDictSequential(
        TensorDictModule(net(4), ["observation"], ["h"]), TensorDictModule(net(), ["h"], ["action"])
    ).select_out_keys("action")
    with set_exploration_type(RANDOM):
        assert set(planned(policy)(data()).keys()) == {"observation", "action"}


@pytest.mark.parametrize("name", ["categorical", "one-hot", "normal"])
def test_a_planned_policy_still_refuses_invalid_parameters(validated: None, name: str) -> None:
    policy = POLICIES[name]()
    for parameter in policy.parameters():
        parameter.data.fill_(float("nan"))
    with torch.no_grad(), set_exploration_type(RANDOM), pytest.raises(Exception, match="constraint"):
        planned(policy)(data())


def test_a_missing_entry_is_named() -> None:
    policy = POLICIES["module"]()
    with set_exploration_type(RANDOM), pytest.raises(KeyError, match="observation"):
        planned(policy)(TensorDict({"pixels": torch.zeros(3)}, [3]))


def test_a_hook_added_between_two_batches_is_called() -> None:
    policy = TensorDictModule(lambda x: torch.eye(3, dtype=torch.bool)[:2], ["observation"], ["action"])
    seen: list[int] = []
    with Collector(CountingEnv(3, batch_size=(2,)), policy, frames_per_batch=8) as collector:
        next(collector)
        policy.register_forward_hook(lambda *args: seen.append(1))
        next(collector)
    assert len(seen) == 4
