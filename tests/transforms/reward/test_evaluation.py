"""``evaluate`` counts whole episodes, in each kind of environment."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from steppe import (
    AsyncEnvPool,
    CategoricalActor,
    ParallelEnv,
    RewardSum,
    SerialEnv,
    StepCounter,
    TransformedEnv,
    evaluate,
    make_env,
)
from steppe.errors import ArgumentError, StateError
from steppe_testing import CountingEnv

ID = "gym:CartPole-v1"


def counting(length: int):
    return CountingEnv(max_steps=length)


def always_right(td):
    return td.set("action", torch.tensor([0, 1]).expand(*td.batch_size, 2).clone())


@pytest.mark.parametrize(
    "make",
    [
        lambda: make_env(ID),
        lambda: SerialEnv(3, ID),
        lambda: ParallelEnv(3, ID),
        lambda: AsyncEnvPool([ID] * 3),
        lambda: make_env(ID, num_envs=3),
        lambda: make_env("envpool:CartPole-v1", num_workers=3),
        lambda: TransformedEnv(make_env("vmas:balance", num_envs=3, n_agents=2), StepCounter(20)),
        lambda: SerialEnv(2, "pettingzoo:mpe2/simple_spread_v3"),
    ],
    ids=["one", "serial", "parallel", "pool", "vector", "envpool", "vmas", "groups"],
)
def test_every_kind_of_environment_is_evaluated(make):
    env = make()
    result = evaluate(None, env, 5, seed=0)

    assert result.returns.shape == result.lengths.shape == (5,)
    assert (result.lengths > 0).all()
    assert not env.is_closed  # it belongs to the caller
    env.close()


def test_returns_are_sums_of_rewards_of_whole_episodes():
    with TransformedEnv(make_env(ID), RewardSum()) as env:
        env.set_seed(3)
        data = env.rollout(700, always_right, break_when_any_done=False)
    ended = data["next", "done"].squeeze(-1)
    with make_env(ID) as env:
        result = evaluate(always_right, env, 40, seed=3)

    assert torch.equal(result.returns, data["next", "episode_reward"][ended].flatten()[:40])
    assert torch.equal(result.lengths.float(), result.returns)
    assert result.mean == pytest.approx(float(result.returns.mean()))
    assert str(result) == f"{result.mean:.1f} +- {result.std:.1f} over 40 episodes"


def test_episodes_longer_than_a_batch_are_whole():
    result = evaluate(None, lambda: counting(150), 2)

    assert result.lengths.tolist() == [150, 150]


def test_each_environment_runs_as_many_episodes():
    # Counting whichever episodes end first would leave out the long ones.
    env = SerialEnv(2, [lambda: counting(10), lambda: counting(100)])
    result = evaluate(None, env, 5)

    assert result.lengths.tolist() == [10, 10, 10, 100, 100]


def test_modules_are_in_evaluation_mode_meanwhile():
    seen = set()

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer, self.frozen = nn.Linear(4, 2), nn.Dropout().eval()

        def forward(self, observation):
            seen.add(self.training)
            return self.layer(observation)

    actor = CategoricalActor(Net())
    evaluate(actor, ID, 1, seed=0)

    assert seen == {False}
    assert actor.training
    assert {each.training for each in actor.modules() if isinstance(each, nn.Dropout)} == {False}


def test_one_seed_gives_one_result():
    torch.manual_seed(0)
    actor = CategoricalActor(nn.Linear(4, 2))

    assert torch.equal(evaluate(actor, ID, 4, seed=1).returns, evaluate(actor, ID, 4, seed=1).returns)


def test_endless_episodes_are_an_error(monkeypatch):
    monkeypatch.setattr("steppe_reward.evaluation._ENDLESS", 500)
    with pytest.raises(StateError, match="StepCounter"):
        evaluate(None, lambda: counting(10_000), 1)


@pytest.mark.parametrize("n", [0, -1, 2.0, True])
def test_the_number_of_episodes_is_checked(n):
    with pytest.raises(ArgumentError, match="n_episodes must be a whole number >= 1"):
        evaluate(None, ID, n)
