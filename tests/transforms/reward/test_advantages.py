"""Generalized advantages: equal to sums by hand, over ends, borders, padding and groups."""

from __future__ import annotations

import pytest
import torch
from tensordict import TensorDict

from steppe import Collector, SerialEnv, gae
from steppe.errors import SpecError


def steps(rows: int, length: int, *, done: list[tuple[int, int]], terminated: list[tuple[int, int]]) -> TensorDict:
    ends = torch.zeros(rows, length, 1, dtype=torch.bool)
    dies = ends.clone()
    for place in done:
        ends[place] = True
    for place in terminated:
        dies[place] = True
    reward = torch.randn(rows, length, 1, dtype=torch.float64)
    return TensorDict({"next": {"reward": reward, "done": ends, "terminated": dies}}, [rows, length])


def by_hand(data, value, next_value, gamma, lambda_, cuts=()):
    """Equation 16 of Schulman et al. 2016: the discounted sum of all later errors in the same trajectory."""
    out = torch.zeros_like(value)
    nxt = data["next"]
    for row in range(value.shape[0]):
        for t in range(value.shape[1]):
            for k in range(t, value.shape[1]):
                follows = 0 if nxt["terminated"][row, k] else next_value[row, k]
                error = nxt["reward"][row, k] + gamma * follows - value[row, k]
                out[row, t] += (gamma * lambda_) ** (k - t) * error
                if nxt["done"][row, k] or (row, k) in cuts:
                    break
    return out


@pytest.mark.parametrize(("gamma", "lambda_"), [(0.99, 0.95), (0.9, 0.0), (1.0, 1.0)])
def test_advantages_are_sums_of_later_errors(gamma, lambda_):
    data = steps(3, 8, done=[(0, 2), (0, 6), (1, 7), (2, 0)], terminated=[(0, 2), (2, 0)])
    value, next_value = torch.randn(2, 3, 8, 1, dtype=torch.float64)

    advantage, returns = gae(data, value, next_value, gamma=gamma, lambda_=lambda_)

    torch.testing.assert_close(advantage, by_hand(data, value, next_value, gamma, lambda_))
    torch.testing.assert_close(returns, advantage + value)


def test_advantages_stop_where_the_trajectory_changes():
    data = steps(2, 6, done=[], terminated=[])
    data["collector", "traj_ids"] = torch.tensor([[0, 0, 0, 2, 2, 2], [1, 1, 1, 1, 1, 1]])
    value, next_value = torch.randn(2, 2, 6, 1, dtype=torch.float64)

    advantage, _ = gae(data, value, next_value)

    torch.testing.assert_close(advantage, by_hand(data, value, next_value, 0.99, 0.95, cuts=[(0, 2)]))


def test_padding_has_no_advantage_and_changes_none():
    data = steps(2, 7, done=[(0, 3)], terminated=[(0, 3)])
    value, next_value = torch.randn(2, 2, 7, dtype=torch.float64)
    alone = by_hand(data[:, :5], value[:, :5, None], next_value[:, :5, None], 0.99, 0.95).squeeze(-1)
    data["collector", "mask"] = torch.tensor([[True] * 4 + [False] * 3, [True] * 5 + [False] * 2])

    advantage, _ = gae(data, value, next_value)

    torch.testing.assert_close(advantage[0, :4], alone[0, :4])
    torch.testing.assert_close(advantage[1, :5], alone[1])
    assert (advantage[~data["collector", "mask"]] == 0).all()


def test_time_may_be_the_first_dimension():
    data = steps(3, 5, done=[(1, 2)], terminated=[])
    value, next_value = torch.randn(2, 3, 5, 1, dtype=torch.float64)
    turned = data.transpose(0, 1).contiguous()
    turned.names = ["time", None]

    advantage, _ = gae(turned, value.transpose(0, 1), next_value.transpose(0, 1))

    torch.testing.assert_close(advantage.transpose(0, 1), gae(data, value, next_value)[0])


def test_each_agent_of_a_group_has_its_advantage():
    data = steps(2, 5, done=[(0, 1)], terminated=[(0, 1)])
    reward, value, next_value = torch.randn(3, 2, 5, 3, 1, dtype=torch.float64)

    advantage, _ = gae(data, value, next_value, reward=reward)

    for agent in range(3):
        of_one = data.clone().set(("next", "reward"), reward[..., agent, :])
        expected, _ = gae(of_one, value[..., agent, :], next_value[..., agent, :])
        torch.testing.assert_close(advantage[..., agent, :], expected)


def test_advantages_of_collected_batches_have_no_gradient():
    critic = torch.nn.Linear(4, 1)
    with Collector(SerialEnv(2, "gym:CartPole-v1"), None, frames_per_batch=40, seed=0) as collector:
        data = next(collector)

    advantage, _ = gae(data, critic(data["observation"]), critic(data["next", "observation"]))

    assert advantage.shape == (2, 20, 1)
    assert not advantage.requires_grad


def test_values_of_another_shape_are_an_error():
    data = steps(2, 4, done=[], terminated=[])
    with pytest.raises(SpecError, match=r"must have the shape of the data, \(2, 4\)"):
        gae(data, torch.zeros(4, 2), torch.zeros(4, 2))
    with pytest.raises(SpecError, match="reward has the shape"):
        gae(data, torch.zeros(2, 4), torch.zeros(2, 4), reward=torch.zeros(2, 4, 3))


def test_data_without_rewards_is_an_error():
    data = steps(2, 4, done=[], terminated=[]).exclude(("next", "reward"))
    with pytest.raises(KeyError, match="no reward below next"):
        gae(data, torch.zeros(2, 4), torch.zeros(2, 4))
