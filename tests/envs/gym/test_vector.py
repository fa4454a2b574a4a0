"""Vector environments of gymnasium: ends of episodes, and resets."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
import torch

gymnasium = pytest.importorskip("gymnasium", minversion="1.1")

from gymnasium.vector import AutoresetMode  # noqa: E402

from steppe.envs import check_env_specs  # noqa: E402
from steppe.errors import NotSupported  # noqa: E402
from steppe_gym import GymEnv, GymWrapper  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")
MODES = ["NEXT_STEP", "SAME_STEP", "DISABLED"]


class Counting(gymnasium.Env):
    """Observes how many steps it has made, and how many episodes."""

    observation_space = gymnasium.spaces.Dict(
        {"step": gymnasium.spaces.Box(0, 99, (1,)), "episode": gymnasium.spaces.Discrete(9)}
    )
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, length):
        self.length, self.count, self.episode = length, 0, -1

    def _observation(self):
        return {"step": np.array([self.count], np.float32), "episode": self.episode}

    def reset(self, *, seed=None, options=None):
        self.count, self.episode = 0, self.episode + 1
        return self._observation(), {}

    def step(self, action):
        self.count += 1
        return self._observation(), float(self.count), self.count >= self.length, False, {}


def counting(mode, lengths=(2, 3), cls=gymnasium.vector.SyncVectorEnv):
    makers = [lambda length=length: Counting(length) for length in lengths]
    return GymWrapper(cls(makers, autoreset_mode=AutoresetMode[mode]), categorical_action_encoding=True)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("cls", [gymnasium.vector.SyncVectorEnv, gymnasium.vector.AsyncVectorEnv])
def test_last_observations_are_in_next_first_ones_in_the_root(mode, cls):
    """The root after a done row holds the first observation of its new episode."""
    env = counting(mode, cls=cls)
    env.set_seed(0)
    data = env.rollout(6, break_when_any_done=False)
    env.close()

    assert data["next", "step"].squeeze(-1).tolist() == [[1, 2, 1, 2, 1, 2], [1, 2, 3, 1, 2, 3]]
    assert data["step"].squeeze(-1).tolist() == [[0, 1, 0, 1, 0, 1], [0, 1, 2, 0, 1, 2]]
    assert data["next", "episode"].tolist() == [[0, 0, 1, 1, 2, 2], [0, 0, 0, 1, 1, 1]]
    assert data["next", "reward"].squeeze(-1).tolist() == [[1, 2, 1, 2, 1, 2], [1, 2, 3, 1, 2, 3]]
    assert data["next", "done"].squeeze(-1).tolist() == [[False, True] * 3, [False, False, True] * 2]


@pytest.mark.parametrize("mode", MODES)
def test_rows_that_end_together(mode):
    data = counting(mode, (2, 2)).rollout(5, break_when_any_done=False)

    assert data["step"].squeeze(-1).tolist() == [[0, 1, 0, 1, 0]] * 2


@pytest.mark.parametrize("mode", MODES)
def test_rollouts_until_all_rows_have_ended(mode):
    env = counting(mode)
    data = env.rollout(9, break_when_any_done=False, break_when_all_done=True)

    assert data.batch_size == (2, 3)
    assert data["next", "step"].squeeze(-1).tolist() == [[1, 2, 2], [1, 2, 3]]
    assert env.reset()["step"].flatten().tolist() == [0, 0]


@pytest.mark.parametrize("mode", ["NEXT_STEP", "DISABLED"])
def test_rows_are_reset_alone_by_mask(mode):
    env = counting(mode, (5, 5))
    root = env.reset()
    root = env.step_mdp(env.rand_step(root))
    root["_reset"] = torch.tensor([[False], [True]])
    root = env.reset(root)

    assert root["step"].flatten().tolist() == [1, 0]
    assert env.rand_step(root)["next", "step"].flatten().tolist() == [2, 1]


def test_a_row_that_has_not_ended_cannot_be_left_out_of_a_step():
    env = counting("NEXT_STEP", (5, 5))
    root = env.rand_action(env.reset())
    root["_step"] = torch.tensor([True, False])

    with pytest.raises(NotSupported, match="steps all of its environments"):
        env.step(root)


def test_specs_of_a_batch():
    env = GymEnv("CartPole-v1", 3)

    assert env.batch_size == (3,)
    assert env.action_spec.shape == (3, 2)
    assert env.full_observation_spec["observation"].shape == (3, 4)
    check_env_specs(env)


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_a_batch_is_the_library_s_with_its_seeds(mode):
    env = GymEnv("Pendulum-v1", 2, vectorization_mode=mode)
    raw = gymnasium.make_vec("Pendulum-v1", 2, vectorization_mode="sync")
    env.set_seed(3)
    observation = raw.reset(seed=3)[0]
    root = env.reset()
    np.testing.assert_array_equal(observation, root["observation"].numpy())
    actions = raw.action_space.sample()
    root["action"] = torch.from_numpy(actions.copy())
    following = env.step(root)["next"]
    observation, reward, *_ = raw.step(actions)
    env.close()

    np.testing.assert_array_equal(observation, following["observation"].numpy())
    np.testing.assert_array_equal(reward.astype(np.float32), following["reward"].flatten().numpy())


def test_valid_marks_transitions_without_masks():
    """A vector environment without reset masks marks the steps in which it resets."""
    env = GymEnv("CartPole-v1", 4, vectorization_mode="vector_entry_point")
    assert "valid" in env.observation_keys
    check_env_specs(env)
    env.set_seed(0)
    data = env.rollout(120, break_when_any_done=False)
    valid = data["next", "valid"].squeeze(-1)

    assert 0 < (~valid).sum() <= data["next", "done"].sum()
    assert not data["next", "reward"][~valid].any()
    assert not data["next", "done"][~valid].any()
    after_done = torch.zeros_like(valid)
    after_done[:, 1:] = data["next", "done"].squeeze(-1)[:, :-1]
    assert (~valid <= after_done).all()


def test_async_without_shared_memory_resets_in_the_next_step():
    """Processes without shared memory keep the library's reset in the next step."""
    private = partial(gymnasium.vector.AsyncVectorEnv, shared_memory=False)
    env = counting("NEXT_STEP", (2, 5), cls=private)
    data = env.rollout(6, break_when_any_done=False)["next"]
    env.close()

    assert data["step"].squeeze(-1).tolist() == [[1, 2, 0, 1, 2, 0], [1, 2, 3, 4, 5, 0]]
    assert data["valid"].squeeze(-1).tolist() == [[True, True, False] * 2, [True] * 5 + [False]]
    assert data["done"].squeeze(-1).tolist() == [[False, True, False] * 2, [False] * 4 + [True, False]]


def test_a_reset_without_shared_memory_resets_ended_rows_again():
    """A row that ended before all were reset is reset again in the first step."""
    env = counting("NEXT_STEP", (2, 5), cls=partial(gymnasium.vector.AsyncVectorEnv, shared_memory=False))
    env.rollout(2, break_when_any_done=False)
    data = env.rollout(2, break_when_any_done=False)["next"]
    env.close()

    assert data["step"].squeeze(-1).tolist() == [[0, 1], [1, 2]]
    assert data["valid"].squeeze(-1).tolist() == [[False, True], [True, True]]


def test_ordinary_batches_have_no_such_rows():
    assert "valid" not in GymEnv("CartPole-v1", 2).observation_keys


def test_frame_skip_of_a_batch():
    env = GymEnv("CartPole-v1", 2, frame_skip=3)
    env.set_seed(0)

    assert env.rollout(2)["next", "reward"].flatten().tolist() == [3.0] * 4
    with pytest.raises(NotSupported, match="num_envs, frame_skip"):
        GymWrapper(gymnasium.make_vec("CartPole-v1", 2), frame_skip=2)


def test_one_hot_and_continuous_actions_reach_their_rows():
    env = GymEnv("MountainCarContinuous-v0", 3)
    env.set_seed(0)
    root = env.reset()
    root["action"] = torch.tensor([[1.0], [0.0], [-1.0]])
    velocity = env.step(root)["next", "observation"][:, 1]
    assert velocity[0] > velocity[1] > velocity[2]

    env = GymEnv("CartPole-v1", 2)
    env.set_seed(0)
    root = env.reset()
    root["action"] = torch.tensor([[1, 0], [0, 1]])
    velocity = env.step(root)["next", "observation"][:, 1]
    assert velocity[0] < 0 < velocity[1]


def test_wrappers_around_a_vector_environment():
    vector = gymnasium.wrappers.vector.RecordEpisodeStatistics(
        gymnasium.make_vec("CartPole-v1", 2, vectorization_mode="sync")
    )
    data = GymWrapper(vector).rollout(40, break_when_any_done=False)

    assert data.batch_size == (2, 40)
    assert (data["observation"][:, 1:][data["next", "done"].squeeze(-1)[:, :-1]].abs() <= 0.05).all()


def test_vector_environments_of_stable_baselines():
    vec = pytest.importorskip("stable_baselines3.common.vec_env")
    env = GymWrapper(vec.DummyVecEnv([lambda: gymnasium.make("CartPole-v1")] * 2), categorical_action_encoding=True)
    env.set_seed(0)
    ones = torch.ones(30, 2, dtype=torch.int64)
    data = env.rollout(30, actions=ones, break_when_any_done=False)

    own = GymEnv("CartPole-v1", 2, categorical_action_encoding=True)
    own.set_seed(0)
    assert (data == own.rollout(30, actions=ones, break_when_any_done=False)).all()
