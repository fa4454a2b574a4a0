"""Actors that draw in few operations draw from the distributions of torch."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tensordict import TensorDict
from tensordict.nn import TensorDictModule, TensorDictSequential
from torch import distributions, nn

from steppe import (
    CategoricalActor,
    Collector,
    ExplorationType,
    NormalActor,
    SerialEnv,
    make_env,
    set_exploration_type,
)
from steppe.errors import ActionError, PolicyError
from steppe_agents.fused_draws import categorical, normal, one_hot
from steppe_testing import CountingEnv

RANDOM = ExplorationType.RANDOM


@pytest.fixture
def validated(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let distributions validate their parameters, which is torch's default."""
    monkeypatch.setattr(distributions.Distribution, "_validate_args", True)


def test_categories_come_as_often_as_their_probabilities_say() -> None:
    logits = torch.tensor([0.0, 1.0, -1.0, 2.0]).expand(40_000, 4)
    sample, log_prob = categorical(True, logits)  # type: ignore[misc]
    expected = distributions.Categorical(logits=logits)
    assert torch.allclose(log_prob, expected.log_prob(sample), atol=1e-6)
    frequencies = torch.bincount(sample, minlength=4) / len(sample)
    five_sigma = 5 * (expected.probs[0] * (1 - expected.probs[0]) / len(sample)).sqrt()
    assert ((frequencies - expected.probs[0]).abs() < five_sigma).all()


def test_a_one_hot_sample_has_a_single_one() -> None:
    logits = torch.randn(50, 3, 5)
    sample, log_prob = one_hot(True, logits)  # type: ignore[misc]
    assert sample.sum(-1).eq(1).all()
    assert torch.allclose(log_prob, distributions.OneHotCategorical(logits=logits).log_prob(sample), atol=1e-6)


def test_normal_numbers_have_mean_and_deviation() -> None:
    loc, scale = torch.tensor([1.0, -2.0]).expand(40_000, 2), torch.tensor([0.5, 3.0]).expand(40_000, 2)
    sample, log_prob = normal(True, loc, scale)  # type: ignore[misc]
    expected = distributions.Independent(distributions.Normal(loc, scale), 1)
    assert torch.allclose(log_prob, expected.log_prob(sample), atol=1e-4)
    assert torch.allclose(sample.mean(0), loc[0], atol=float(5 * 3 / 200))
    assert torch.allclose(sample.std(0), scale[0], rtol=0.03)


@pytest.mark.parametrize("make", [CategoricalActor, NormalActor])
def test_an_actor_offers_what_losses_ask_for(make: Any) -> None:
    actor = make(nn.Linear(4, 6))
    td = TensorDict({"observation": torch.randn(5, 4)}, [5])
    with torch.no_grad(), set_exploration_type(RANDOM):
        actor(td)
    distribution = actor.get_dist(td)
    assert torch.allclose(distribution.log_prob(td["action"]), td["action_log_prob"], atol=1e-5)
    assert torch.allclose(actor.log_prob(td), td["action_log_prob"], atol=1e-5)
    assert actor.log_prob(td).requires_grad
    with set_exploration_type(ExplorationType.DETERMINISTIC):
        first, second = actor(td.copy())["action"], actor(td.copy())["action"]
    assert torch.equal(first, second)


def test_categories_or_one_hot_as_the_environment_has_them() -> None:
    for one, batch in ((True, SerialEnv(2, "gym:CartPole-v1")), (False, None)):
        if batch is None:
            batch = SerialEnv(2, "gym:CartPole-v1", create_env_kwargs={"categorical_action_encoding": True})
        with Collector(batch, CategoricalActor(nn.Linear(4, 2), one_hot=one), frames_per_batch=20) as collector:
            data = next(collector)
        assert data["action"].shape == ((2, 10, 2) if one else (2, 10))
        assert data["action"].dtype is torch.int64
        assert data["action_log_prob"].shape == (2, 10)
        batch.close()


@pytest.mark.parametrize("act", ["collect", "roll out", "with another net"])
def test_an_actor_refuses_actions_of_the_other_kind(act: str) -> None:
    """A categorical actor refuses continuous actions, a normal actor discrete ones."""
    pairs: list[tuple[str, dict[str, Any], Any, str]] = [
        (
            "gym:Pendulum-v1",
            {},
            CategoricalActor(nn.Linear(3, 1)),
            r"Bounded\(low=-2.*NormalActor\(module\).* 2 numbers",
        ),
        ("gym:CartPole-v1", {}, NormalActor(nn.Linear(4, 4)), r"OneHot\(n=2.*CategoricalActor\(module\).* 2 logits"),
        (
            "gym:CartPole-v1",
            {"categorical_action_encoding": True},
            NormalActor(nn.Linear(4, 4)),
            r"Categorical\(n=2.*CategoricalActor\(module, one_hot=False\)",
        ),
    ]
    for name, arguments, actor, said in pairs:
        env = make_env(name, **arguments)
        if act == "with another net":
            actor = TensorDictSequential(TensorDictModule(nn.Identity(), ["observation"], ["observation"]), actor)
        with pytest.raises(ActionError, match=said):
            Collector(env, actor, frames_per_batch=4) if act == "collect" else env.rollout(2, actor)
        env.close()


FORMS: list[tuple[Any, bool, str]] = [
    (
        "categorical",
        True,
        r"one_hot=True writes actions of OneHot.*CategoricalActor\(module, one_hot=False\).* 3 logits",
    ),
    ("one_hot", False, r"one_hot=False writes actions of Categorical.*CategoricalActor\(module\).* 3 logits"),
    ("multi_categorical", False, r"No actor of steppe draws such actions"),
    ("multi_one_hot", True, r"No actor of steppe draws such actions"),
]


@pytest.mark.parametrize(("kind", "one_hot", "said"), FORMS, ids=[form[0] for form in FORMS])
def test_a_categorical_actor_names_the_argument_for_a_spec(kind: Any, one_hot: bool, said: str) -> None:
    env = CountingEnv(action=kind)
    module = TensorDictModule(lambda observation: torch.zeros(*observation.shape[:-1], 3), ["observation"], ["logits"])
    with pytest.raises(ActionError, match=said):
        env.rollout(2, CategoricalActor(module, one_hot=one_hot))
    with pytest.raises(ActionError, match=said):
        Collector(env, CategoricalActor(module, one_hot=one_hot), frames_per_batch=2)
    if "logits" in said:
        actions = env.rollout(4, CategoricalActor(module, one_hot=not one_hot))["action"]
        env.action_spec.assert_is_in(actions.to(env.action_spec.dtype))
    with pytest.raises(ActionError, match=r"CategoricalActor|No actor"):
        env.rollout(2, NormalActor(nn.Linear(1, 2)))


def test_an_actor_of_another_entry_may_be_of_another_kind() -> None:
    """An actor whose output is not the action need not match the kind of the action."""
    env = make_env("gym:Pendulum-v1")
    option = CategoricalActor(nn.Linear(3, 5), out_keys=["option"])
    both = TensorDictSequential(option, NormalActor(nn.Linear(3, 2), log_prob_key="log_prob"))
    assert env.rollout(2, both)["option"].shape == (2, 5)
    env.close()


@pytest.mark.parametrize("make", [CategoricalActor, NormalActor])
def test_invalid_parameters_are_refused(validated: None, make: Any) -> None:
    actor = make(nn.Linear(4, 6))
    td = TensorDict({"observation": torch.full((5, 4), float("nan"))}, [5])
    with torch.no_grad(), set_exploration_type(RANDOM), pytest.raises(ValueError, match="constraint"):
        actor(td)


def test_an_output_without_deviations_is_refused() -> None:
    """If a module gives no deviation per number, the error shows the layer to write."""
    actor = NormalActor(nn.Linear(3, 1))
    with pytest.raises(PolicyError, match=r"2 \* k numbers for actions of k; found 1.*nn\.Linear\(\.\.\., 2 \* env"):
        SerialEnv(2, "gym:Pendulum-v1").rollout(3, actor)


def test_padded_steps_are_an_error_that_says_what_to_write():
    actor = CategoricalActor(nn.Linear(4, 2))
    data = TensorDict({"observation": torch.zeros(2, 4), "action": torch.tensor([[0, 1], [0, 0]])}, [2])
    mask = torch.tensor([True, False])

    assert actor.log_prob(data[mask]).shape == (1,)
    with pytest.raises(ValueError, match=r"Leave them out: actor\.log_prob\(data\[mask\]\)"):
        actor.log_prob(data)
