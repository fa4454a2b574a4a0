"""Returns of several steps, beside a slow reference in numpy, for random episodes."""

from __future__ import annotations

import itertools
import pickle
from typing import Any

import numpy as np
import pytest
import torch
from tensordict import TensorDict, TensorDictBase

from steppe import MultiaSyncDataCollector, SyncDataCollector, make_env
from steppe.errors import SpecError
from steppe.transforms import Compose, MultiStepTransform, RewardScaling
from steppe_replay import LazyTensorStorage, ReplayBuffer, SamplerWithoutReplacement
from steppe_testing import ArrayCountingEnv
from tests.limits import CHILD

GAMMA = 0.75


def episodes(seed: int, rows: int, steps: int, *, numbered: bool = True) -> TensorDictBase:
    """Return rows of episodes that terminate or are truncated at random; each observation is unique."""
    draws = np.random.default_rng(seed)
    done = draws.random((rows, steps)) < 0.25
    terminated = done & (draws.random((rows, steps)) < 0.5)
    root, following = np.empty((2, rows, steps), np.float32)
    unique = itertools.count()
    for row in range(rows):
        now = next(unique)
        for t in range(steps):
            root[row, t], following[row, t] = now, (now := next(unique))
            now = next(unique) if done[row, t] else now
    flags = {"done": done, "terminated": terminated, "truncated": done & ~terminated}
    data = TensorDict(
        {
            "observation": torch.from_numpy(root),
            "next": {
                "observation": torch.from_numpy(following),
                "reward": torch.from_numpy(draws.standard_normal((rows, steps, 1)).astype(np.float32)),
                **{name: torch.from_numpy(flag[..., None]) for name, flag in flags.items()},
            },
        },
        [rows, steps],
    )
    if numbered:
        numbers = np.cumsum(np.pad(done, ((0, 0), (1, 0)))[:, :-1], 1) + 1000 * np.arange(rows)[:, None]
        data["collector", "traj_ids"] = torch.from_numpy(numbers)
    return data


def reference(data: TensorDictBase, n: int, row: int, t: int, end: int) -> dict[Any, Any]:
    """Return what a step of a row must become, if the data of the row ends at ``end``."""
    total, k = 0.0, 0
    while True:
        total += GAMMA**k * float(data["next", "reward"][row, t + k])
        k += 1
        if k == n or bool(data["next", "done"][row, t + k - 1]) or t + k == end:
            break
    last = data["next"][row, t + k - 1]
    return {
        ("next", "reward"): total,
        ("next", "original_reward"): float(data["next", "reward"][row, t]),
        ("next", "observation"): float(last["observation"]),
        ("next", "terminated"): float(last["terminated"]),
        ("next", "truncated"): float(last["truncated"]),
        ("next", "done"): float(last["done"]),
        "observation": float(data["observation"][row, t]),
        "gamma": GAMMA**k,
        "steps_to_next_obs": k,
        "nonterminal": float(not last["terminated"]),
    }


def check(result: TensorDictBase, data: TensorDictBase, n: int, first: int = 0) -> None:
    """Compare results, which begin with step ``first`` of each row, with the reference."""
    rows, steps = data.batch_size
    for row, t in itertools.product(range(rows), range(result.shape[1])):
        for key, value in reference(data, n, row, first + t, steps).items():
            assert float(result[row, t][key]) == pytest.approx(value, abs=1e-5), (key, row, t)


@pytest.mark.parametrize("numbered", [True, False], ids=["numbered", "by done"])
@pytest.mark.parametrize("seed", range(8))
def test_returns_equal_a_slow_reference(seed, numbered):
    n = 1 + seed % 5
    data = episodes(seed, 3, 23, numbered=numbered)
    kept = data.clone()

    check(MultiStepTransform(n, GAMMA).returns(data), data, n)
    assert all(torch.equal(data[key], kept[key]) for key in kept.keys(True, True))


@pytest.mark.parametrize("numbered", [True, False], ids=["numbered", "by done"])
@pytest.mark.parametrize("seed", range(8))
def test_parts_of_any_length_give_the_returns_of_the_whole(seed, numbered):
    """The last n - 1 steps of each part wait for the next part."""
    n = 1 + seed % 5
    data = episodes(100 + seed, 2, 40, numbered=numbered)
    cuts = np.sort(np.random.default_rng(seed).choice(np.arange(1, 40), 6, replace=False))
    transform = MultiStepTransform(n, GAMMA)
    parts = [transform.inv(data[:, a:b]) for a, b in itertools.pairwise([0, *cuts.tolist(), 40])]
    result = torch.cat(parts, 1)

    assert result.shape[1] == 40 - (n - 1)
    for row, t in itertools.product(range(2), range(result.shape[1])):
        for key, value in reference(data, n, row, t, 40).items():
            assert float(result[row, t][key]) == pytest.approx(value, abs=1e-5), (key, row, t)


@pytest.mark.parametrize("numbered", [True, False], ids=["numbered", "by done"])
def test_steps_do_not_continue_in_data_of_another_source(numbered):
    """Batches of two workers in turn: each gets the rewards of its own batch only."""
    first, second = (episodes(seed, 1, 6, numbered=numbered) for seed in (1, 2))
    second["observation"] += 500.0
    second["next", "observation"] += 500.0
    if numbered:
        second["collector", "traj_ids"] += 500
    transform = MultiStepTransform(3, GAMMA)
    result = torch.cat([transform.inv(first), transform.inv(second)], 1)

    for t in range(6):
        for key, value in reference(first, 3, 0, t, 6).items():
            assert float(result[0, t][key]) == pytest.approx(value, abs=1e-5), (key, t)


def test_a_target_takes_no_value_after_a_terminated_episode():
    """Truncated episodes are bootstrapped from their last observation, with gamma to the number of steps."""
    data = episodes(0, 1, 4)
    flags = torch.zeros(1, 4, 1, dtype=torch.bool)
    for name in ("done", "terminated", "truncated"):
        data["next", name] = flags.clone()
    data["collector", "traj_ids"] = torch.tensor([[0, 0, 1, 1]])
    for name, at in (("terminated", 1), ("truncated", 3)):
        data["next", name][0, at] = data["next", "done"][0, at] = True
    result = MultiStepTransform(5, GAMMA).returns(data)

    assert result["next", "terminated"].flatten().tolist() == [True, True, False, False]
    assert result["nonterminal"].flatten().tolist() == [False, False, True, True]
    assert result["gamma"].flatten().tolist() == [GAMMA**2, GAMMA, GAMMA**2, GAMMA]
    assert result["next", "observation"][0].tolist() == data["next", "observation"][0, [1, 1, 3, 3]].tolist()


def test_the_reference_pads_no_returns():
    """Steps of padding, and those before it, take no reward from the other."""
    data = episodes(3, 2, 10)
    for name in ("done", "terminated", "truncated"):
        data["next", name] = torch.zeros_like(data["next", name])
    data["collector", "traj_ids"] = torch.zeros(2, 10, dtype=torch.int64)
    data["mask"] = torch.ones(2, 10, dtype=torch.bool)
    data["mask"][1, 6:] = False
    result = MultiStepTransform(3, GAMMA).returns(data)

    assert result["steps_to_next_obs"].tolist() == [[3] * 8 + [2, 1], [3, 3, 3, 3, 2, 1, 3, 3, 2, 1]]
    assert result["nonterminal"][1].tolist() == [True] * 6 + [False] * 4


def test_rewards_of_groups_and_integers_are_summed():
    data = TensorDict(
        {
            "next": {
                "agents": {"reward": torch.arange(12).reshape(4, 3, 1)},
                "reward": torch.ones(4, 1),
                "done": torch.zeros(4, 1, dtype=torch.bool),
            }
        },
        [4],
    )
    result = MultiStepTransform(2, 0.5, reward_keys=["reward", ("agents", "reward")]).returns(data)

    assert result["next", "agents", "reward"][:, 0, 0].tolist() == [1.5, 6.0, 10.5, 9.0]
    assert result["next", "agents", "original_reward"].dtype is torch.int64
    assert result["next", "reward"].flatten().tolist() == [1.5, 1.5, 1.5, 1.0]


def test_time_is_the_dimension_of_that_name():
    data = episodes(5, 3, 12)
    turned = data.transpose(0, 1)
    turned.names = ["time", None]
    transform = MultiStepTransform(3, GAMMA)

    check(transform.returns(turned).transpose(0, 1), data, 3)
    assert transform.inv(turned).batch_size == (10, 3)


def test_entries_may_come_later():
    """A policy writes more entries after random frames; they are 0 in the steps that wait."""
    data = episodes(6, 1, 10)
    transform = MultiStepTransform(3, GAMMA)
    transform.inv(data[:, :5])
    later = data[:, 5:].clone().set("value", torch.ones(1, 5))

    assert transform.inv(later)["value"].tolist() == [[0, 0, 1, 1, 1]]


def test_copies_begin_without_the_steps_that_wait():
    data = episodes(7, 1, 6)
    transform = MultiStepTransform(3, GAMMA)
    transform.inv(data)

    for copy in (transform.clone(), pickle.loads(pickle.dumps(transform))):
        assert copy.inv(data).shape[1] == 4
    assert transform.inv(data).shape[1] == 6


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: MultiStepTransform(0, 0.9), "n_steps must be a whole number >= 1, found 0"),
        (lambda: MultiStepTransform(2, 1.5), "gamma must be a number from 0 to 1, found 1.5"),
        (lambda: MultiStepTransform(2, 0.9).returns(episodes(0, 1, 3)[0, 0]), "no batch dimension"),
    ],
)
def test_bad_arguments_are_refused(make, says):
    with pytest.raises(SpecError, match=says):
        make()


def test_other_rows_are_refused():
    transform = MultiStepTransform(3, GAMMA)
    transform.inv(episodes(0, 2, 5))
    with pytest.raises(SpecError, match=r"rows of this data are \(3,\), and those of the data before were \(2,\)"):
        transform.inv(episodes(0, 3, 5))


def test_missing_entries_are_named():
    data = episodes(0, 1, 5)
    with pytest.raises(KeyError, match=r"there is no .*gain.* in the data"):
        MultiStepTransform(2, 0.9, reward_keys=["gain"]).returns(data)
    data = data.exclude(("next", "done"), ("next", "terminated"), ("next", "truncated"), "collector")
    with pytest.raises(KeyError, match="at which episodes end"):
        MultiStepTransform(2, 0.9).returns(data)


# -- in buffers ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ndim", [1, 2])
def test_a_buffer_stores_the_returns_of_successive_batches(ndim):
    data = episodes(8, 2, 30)
    buffer = ReplayBuffer(
        storage=LazyTensorStorage(100, ndim=ndim), transform=Compose(MultiStepTransform(3, GAMMA)), batch_size=10
    )
    rows = data if ndim == 2 else data[0]
    for begin in (0, 1, 2, 10, 11, 25):
        end = {0: 1, 1: 2, 2: 10, 10: 11, 11: 25, 25: 30}[begin]
        buffer.extend(rows[..., begin:end])
    stored = buffer[:] if ndim == 2 else buffer[:].unsqueeze(0)

    assert stored.shape[1] == 28
    for row, t in itertools.product(range(stored.shape[0]), range(28)):
        for key, value in reference(data, 3, row, t, 30).items():
            assert float(stored[row, t][key]) == pytest.approx(value, abs=1e-5), (key, row, t)


def test_nothing_is_written_while_all_steps_wait():
    data = episodes(9, 1, 10)[0]
    buffer = ReplayBuffer(storage=LazyTensorStorage(20), transform=MultiStepTransform(4, GAMMA), batch_size=2)

    assert [len(buffer.extend(data[i : i + 1])) for i in range(6)] == [0, 0, 0, 1, 1, 1]
    assert buffer.write_count == len(buffer) == 3


def test_a_collector_fills_a_buffer_with_returns():
    data = []
    for transform in (None, MultiStepTransform(3, 0.5)):
        buffer = ReplayBuffer(storage=LazyTensorStorage(100), transform=transform)
        with SyncDataCollector(
            lambda: ArrayCountingEnv(5), frames_per_batch=7, total_frames=21, replay_buffer=buffer, seed=0
        ) as collector:
            for _ in collector:
                pass
        data.append(buffer[:])
    expected = MultiStepTransform(3, 0.5).returns(data[0])[:19]

    assert len(data[1]) == 19
    assert set(data[1]["steps_to_next_obs"].tolist()) == {1, 2, 3}
    for key in expected.keys(include_nested=True, leaves_only=True):
        if key != "action":
            assert torch.equal(data[1][key], expected[key]), key


def test_workers_sum_the_rewards_of_their_own_batches():
    buffer = ReplayBuffer(storage=LazyTensorStorage(400), transform=MultiStepTransform(3, 0.5), batch_size=4)
    with MultiaSyncDataCollector(
        [lambda: ArrayCountingEnv(5)] * 2, frames_per_batch=7, total_frames=70, replay_buffer=buffer
    ) as collector:
        for _ in collector:
            pass
        collector.shutdown(timeout=CHILD)
    data = buffer[:]

    assert len(buffer) == collector.stats()["frames"]
    k = (5 - data["observation"].flatten() % 5).clamp(max=3).long()
    shorter = data["steps_to_next_obs"] != k  # at the end of each worker, where no more data came
    assert shorter.sum() <= 2 * 2
    assert (data["steps_to_next_obs"][shorter] < k[shorter]).all()


def test_the_reward_is_transformed_on_the_way_out():
    buffer = ReplayBuffer(
        storage=LazyTensorStorage(20),
        sampler=SamplerWithoutReplacement(shuffle=False),
        transform=Compose(MultiStepTransform(2, 0.5), RewardScaling(0.0, 10.0)),
        batch_size=4,
    )
    env = make_env("gym:CartPole-v1")
    buffer.extend(env.rollout(5))

    assert buffer.sample()["next", "reward"].flatten().tolist() == [15.0, 15.0, 15.0, 15.0]
