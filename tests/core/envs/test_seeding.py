"""Seeds: derivation of seeds, and their effect."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from steppe.envs import EnvBase, next_seed, spread_seed
from steppe.errors import NotSupported, SteppeError
from steppe_testing import ArrayCountingEnv, CountingEnv, IncrementingEnv
from tests.core.envs.counting import BOTH


def test_the_next_seed_is_numpys_first_eight_bytes():
    expected = int.from_bytes(np.random.default_rng(12).bytes(8), "big") % (2**32 - 1)

    assert next_seed(12) == expected
    assert CountingEnv().set_seed(12) == expected


def test_a_seed_spreads_along_the_chain():
    second = next_seed(5)

    assert spread_seed(5, 2) == ([5, second], next_seed(second))
    assert spread_seed(5, 0) == ([], 5)
    assert spread_seed(5, 2, static=True) == ([5, 5], 5)
    assert spread_seed(None, 2) == ([None, None], None)


def test_a_group_begins_after_the_last_seed_of_the_one_before():
    assert spread_seed(5, 3, seed_group=lambda k, seed: seed + 10 * (k + 1)) == ([5, 15, 35], 65)


def test_listed_seeds_are_moved_apart():
    """Listed seeds that follow each other do not give two groups the same environments."""
    seeds, after = spread_seed([5, next_seed(5)], 2)

    assert seeds == [next_seed(5), next_seed(next_seed(5))]
    assert after == next_seed(seeds[1])


def test_a_static_seed_is_returned_itself():
    assert CountingEnv().set_seed(12, static_seed=True) == 12


@pytest.mark.parametrize("seed", [-1, 1.5, "3", True])
def test_a_seed_is_a_whole_number(seed):
    with pytest.raises(SteppeError, match="whole number"):
        CountingEnv().set_seed(seed)


@BOTH
def test_one_seed_gives_one_rollout(make):
    def data(seed, env):
        env.set_seed(seed)
        return env.rollout(5)

    env = make(noise=True)
    first = data(3, env)
    assert (data(3, env) == first).all()
    assert (data(3, make(noise=True)) == first).all()
    for key in ("noise", "action"):
        assert not torch.equal(first[key], data(4, env)[key])


@BOTH
def test_a_seed_holds_for_the_next_reset_only(make):
    env = make(noise=True)
    env.set_seed(3)
    first, second = env.rollout(3), env.rollout(3)

    assert not torch.equal(first["noise"], second["noise"])


def test_array_environments_are_given_the_seed_once():
    seen = []

    class Watched(ArrayCountingEnv):
        def reset_into(self, out, seed, env_info):
            seen.append(seed)
            super().reset_into(out, seed, env_info)

    env = Watched()
    env.set_seed(8)
    env.reset()
    env.reset()

    assert seen == [8, None]
    assert env.take_seed() is None


def test_without_a_seed_random_actions_follow_torch():
    def actions():
        torch.manual_seed(1)
        return CountingEnv(50).rollout(50)["action"]

    assert torch.equal(actions(), actions())


def test_both_classes_draw_the_same_actions_from_one_seed():
    tensors, arrays = CountingEnv(300), ArrayCountingEnv(300)
    tensors.set_seed(5)
    arrays.set_seed(5)

    assert torch.equal(tensors.rollout(200)["action"], arrays.rollout(200)["action"])


def test_a_seed_can_be_seen_in_data():
    env = IncrementingEnv()
    env.set_seed(40)

    assert env.rollout(2)["observation"].squeeze(-1).tolist() == [40, 41]


def test_an_unseedable_environment_is_an_error():
    with pytest.raises(NotSupported, match="cannot be seeded"):
        EnvBase().set_seed(1)


@pytest.mark.parametrize("initialized", [False, True])
def test_a_check_starts_no_gpu(initialized: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two GPUs are pretended. Reading the state of one would start it, in each process that makes environments."""
    read, written = [], []
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: initialized)
    monkeypatch.setattr(torch.cuda, "get_rng_state", lambda device: read.append(device))
    monkeypatch.setattr(torch.cuda, "set_rng_state", lambda state, device: written.append(device))

    CountingEnv().check_env_specs()

    assert read == written == ([0, 1] if initialized else [])


@BOTH
def test_none_seeds_from_the_operating_system(make):
    env = make(noise=True)
    assert env.set_seed(None) is None
    first = env.rollout(3)["noise"]
    env.set_seed(None)

    assert not torch.equal(env.rollout(3)["noise"], first)
