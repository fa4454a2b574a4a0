"""Values of the info dict become entries of the data."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
import torch

gymnasium = pytest.importorskip("gymnasium", minversion="1.1")

from steppe.envs import check_env_specs, default_info_dict_reader  # noqa: E402
from steppe.errors import SpecError  # noqa: E402
from steppe.specs import Unbounded  # noqa: E402
from steppe_gym import GymEnv, GymWrapper  # noqa: E402


class Informed(gymnasium.Env):
    """Counts its steps in its infos; ``bonus`` is there at even steps only."""

    observation_space = gymnasium.spaces.Box(-1, 1, (2,))
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, length=5):
        self.length = length
        self.count = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.count = 0
        return self._observation(), {"count": 0, "label": "start"}

    def step(self, action):
        self.count += 1
        info = {"count": self.count, "pair": np.array([self.count, 1.0]), "label": "on", "_hidden": 3}
        if self.count % 2 == 0:
            info["bonus"] = 0.5
        return self._observation(), 1.0, self.count >= self.length, False, info

    def _observation(self):
        return np.full(2, self.count / 10, np.float32)


def test_chosen_keys_are_read_on_the_array_path():
    env = GymWrapper(Informed()).set_info_dict_reader(["count"])
    assert env.row_writer is not None
    data = env.rollout(4)

    assert data["next", "count"].flatten().tolist() == [1, 2, 3, 4]
    assert data["count"].flatten().tolist() == [0, 1, 2, 3]
    check_env_specs(env)


def test_all_keys_that_are_numbers():
    env = GymWrapper(Informed()).auto_register_info_dict()

    assert sorted(env.observation_keys) == ["bonus", "count", "observation", "pair"]
    check_env_specs(env)


def test_missing_keys_are_zero_and_said():
    reader = default_info_dict_reader(["bonus"], spec={"bonus": Unbounded((1,))})
    env = GymWrapper(Informed())
    env.set_info_dict_reader(reader)
    data = env.rollout(4)

    assert data["next", "bonus"].flatten().tolist() == [0, 0.5, 0, 0.5]
    assert reader.missing == {"bonus"}


class Doubling:
    """A custom reader."""

    info_spec = {"double": Unbounded((1,), dtype=torch.int64)}

    def __call__(self, info, tensordict):
        return tensordict.set("double", torch.tensor([2 * info.get("count", 0)]))


def test_a_reader_of_one_s_own_takes_the_tensordict_path():
    env = GymWrapper(Informed())
    env.set_info_dict_reader(Doubling())
    assert env.row_writer is None
    assert env.rollout(3)["next", "double"].flatten().tolist() == [2, 4, 6]


def test_a_reader_of_one_s_own_reads_each_row_of_a_batch():
    env = GymWrapper(gymnasium.vector.SyncVectorEnv([Informed, partial(Informed, 2)]))
    env.set_info_dict_reader(Doubling())
    data = env.rollout(4, break_when_any_done=False)

    assert data["next", "double"].squeeze(-1).tolist() == [[2, 4, 6, 8], [2, 4, 2, 4]]


def test_a_key_that_no_info_has_is_refused():
    with pytest.raises(SpecError, match="nonsense"):
        GymWrapper(Informed()).set_info_dict_reader(["nonsense"])


@pytest.mark.parametrize("mode", ["NEXT_STEP", "SAME_STEP", "DISABLED"])
def test_infos_of_a_batch_belong_to_the_step(mode):
    lengths = iter([3, 4])
    vector = gymnasium.vector.SyncVectorEnv(
        [lambda: Informed(next(lengths))] * 2, autoreset_mode=gymnasium.vector.AutoresetMode[mode]
    )
    env = GymWrapper(vector)
    env.set_info_dict_reader(["count"])
    data = env.rollout(6, break_when_any_done=False)

    assert data["next", "count"].squeeze(-1).tolist() == [[1, 2, 3, 1, 2, 3], [1, 2, 3, 4, 1, 2]]
    assert data["count"].squeeze(-1).tolist() == [[0, 1, 2, 0, 1, 2], [0, 1, 2, 3, 0, 1]]


@pytest.mark.parametrize("mode", ["NEXT_STEP", "SAME_STEP", "DISABLED"])
def test_infos_of_short_episodes_of_a_batch_are_found(mode):
    vector = gymnasium.vector.SyncVectorEnv(
        [partial(Informed, 2)] * 2, autoreset_mode=gymnasium.vector.AutoresetMode[mode]
    )
    env = GymWrapper(vector).auto_register_info_dict()

    assert {"count", "pair", "bonus"} < set(env.observation_keys)
    assert env.rollout(4, break_when_any_done=False)["next", "count"].squeeze(-1).tolist() == [[1, 2, 1, 2]] * 2


def test_infos_of_mujoco():
    pytest.importorskip("mujoco")
    env = GymEnv("HalfCheetah-v5").auto_register_info_dict()
    data = env.rollout(3)

    raw = gymnasium.make("HalfCheetah-v5")
    assert {"x_velocity", "reward_ctrl"} <= set(env.observation_keys)
    assert data["next", "x_velocity"].shape == (3,)
    assert raw.spec.id == env.spec.id
