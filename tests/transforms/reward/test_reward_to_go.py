"""The rewards that are still to come."""

from __future__ import annotations

import pytest
import torch
from tensordict import TensorDict

from steppe import SyncDataCollector, TransformedEnv
from steppe.errors import NotSupported, SpecError
from steppe.transforms import Compose
from steppe_reward import Reward2GoTransform
from steppe_testing import ArrayCountingEnv, CountingEnv


def episodes(reward: torch.Tensor, ends: list[list[int]], batch_size: list[int]) -> TensorDict:
    done = torch.zeros(*batch_size, 1, dtype=torch.bool)
    for row, steps in enumerate(ends):
        done[row, steps] = True
    return TensorDict({"next": {"reward": reward, "done": done}}, batch_size)


def by_hand(reward: torch.Tensor, done: torch.Tensor, gamma: float) -> torch.Tensor:
    """Each step's sum for itself, to the next end or to the last step."""
    out = torch.zeros_like(reward)
    for row in range(reward.shape[0]):
        for t in range(reward.shape[1]):
            for k in range(t, reward.shape[1]):
                out[row, t] += gamma ** (k - t) * reward[row, k]
                if done[row, k]:
                    break
    return out


@pytest.mark.parametrize("gamma", [1.0, 0.9, 0.0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_sums_go_to_the_end_of_each_episode(gamma, dtype):
    reward = torch.randn(2, 9, 1, dtype=dtype)
    data = episodes(reward, [[3, 8], [5]], [2, 9])

    found = Reward2GoTransform(gamma, out_keys=["to_go"]).inv(data)

    assert torch.allclose(found["to_go"], by_hand(reward, data["next", "done"], gamma), atol=1e-6)
    assert found["to_go"].dtype is dtype
    assert torch.equal(found["next", "reward"], reward)


def test_without_other_keys_it_replaces_the_reward_of_a_copy():
    data = episodes(torch.ones(1, 4, 1), [[3]], [1, 4])

    found = Reward2GoTransform().inv(data)

    assert found["next", "reward"].flatten().tolist() == [4, 3, 2, 1]
    assert data["next", "reward"].flatten().tolist() == [1, 1, 1, 1]


def test_each_agent_has_its_own_sum_and_done_of_its_group():
    reward = torch.ones(1, 4, 2, 1)
    done = torch.tensor([[[0, 0], [0, 1], [0, 0], [1, 1]]], dtype=torch.bool).unsqueeze(-1)
    data = TensorDict({"next": {"agents": {"reward": reward, "done": done}}}, [1, 4])
    keys = {"in_keys": [("next", "agents", "reward")], "done_key": ("agents", "done")}

    found = Reward2GoTransform(0.5, **keys).inv(data)["next", "agents", "reward"]

    assert found[0, :, 0, 0].tolist() == [1.875, 1.75, 1.5, 1.0]
    assert found[0, :, 1, 0].tolist() == [1.5, 1.0, 1.5, 1.0]


def test_one_done_ends_the_episode_of_all_agents():
    data = episodes(torch.ones(1, 4, 3, 1), [[1, 3]], [1, 4])

    found = Reward2GoTransform().inv(data)["next", "reward"]

    assert found[0, :, :, 0].tolist() == [[2] * 3, [1] * 3, [2] * 3, [1] * 3]


def test_time_is_the_dimension_of_that_name():
    data = episodes(torch.arange(6.0).reshape(2, 3, 1), [[0, 1, 2], [0, 1, 2]], [2, 3])
    data.names = ["time", None]
    data["next", "done"][0] = False

    found = Reward2GoTransform().inv(data)["next", "reward"]

    assert found[..., 0].tolist() == [[0 + 3, 1 + 4, 2 + 5], [3, 4, 5]]


def test_a_discount_for_each_objective():
    data = episodes(torch.ones(1, 3, 2), [[2]], [1, 3])

    found = Reward2GoTransform(torch.tensor([1.0, 0.5])).inv(data)["next", "reward"]

    assert found[0].tolist() == [[3, 1.75], [2, 1.5], [1, 1]]


def test_a_collector_calls_it_on_each_batch():
    to_go = Reward2GoTransform(out_keys=["to_go"])
    collector = SyncDataCollector(ArrayCountingEnv(4), None, frames_per_batch=8, total_frames=8, postproc=to_go.inv)

    data = next(iter(collector))
    collector.shutdown()

    reward = data["next", "reward"].unsqueeze(0)
    assert torch.allclose(data["to_go"], by_hand(reward, data["next", "done"].unsqueeze(0), 1.0)[0], atol=1e-5)
    assert data["next", "done"].sum() == 2


def test_calling_it_changes_nothing():
    data = episodes(torch.ones(1, 4, 1), [[3]], [1, 4])

    assert Reward2GoTransform()(data) is data


def test_data_without_an_end_is_refused():
    with pytest.raises(SpecError, match=r"no episode ends in some row.*frames_per_batch"):
        Reward2GoTransform().inv(episodes(torch.ones(2, 4, 1), [[3], []], [2, 4]))


def test_data_without_the_entries_is_refused():
    data = episodes(torch.ones(1, 4, 1), [[3]], [1, 4])

    with pytest.raises(KeyError, match=r"the data has none of .*gain"):
        Reward2GoTransform(in_keys=[("next", "gain")]).inv(data)
    with pytest.raises(KeyError, match=r"no .*next.*end"):
        Reward2GoTransform(done_key="end").inv(data)
    with pytest.raises(SpecError, match="no batch dimension"):
        Reward2GoTransform().inv(data[0, 0])


@pytest.mark.parametrize("wrapped", [lambda t: t, Compose])
def test_reward_to_go_in_an_environment_is_refused(wrapped):
    with pytest.raises(NotSupported, match=r"postproc=transform.inv"):
        TransformedEnv(CountingEnv(), wrapped(Reward2GoTransform())).reset()


def test_in_a_compose_its_inverse_runs():
    data = episodes(torch.ones(1, 4, 1), [[3]], [1, 4])

    assert Compose(Reward2GoTransform()).inv(data)["next", "reward"].flatten().tolist() == [4, 3, 2, 1]


def test_invalid_arguments_are_refused():
    with pytest.raises(SpecError, match="gamma must be a number or a tensor, found 'all'"):
        Reward2GoTransform("all")
    with pytest.raises(SpecError, match="need as many out_keys"):
        Reward2GoTransform(out_keys=["a", "b"])
