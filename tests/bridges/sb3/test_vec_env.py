"""Batches of steppe as VecEnvs: the data of SB3's own, and what its wrappers and algorithms need."""

from __future__ import annotations

import functools

import numpy as np
import pytest

pytest.importorskip("stable_baselines3")

import gymnasium
import torch
from stable_baselines3 import PPO
from stable_baselines3.common import env_util
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import (
    DummyVecEnv,
    VecFrameStack,
    VecMonitor,
    VecNormalize,
    VecTransposeImage,
)
from tensordict import TensorDict

from steppe import EnvBase, ParallelEnv, SerialEnv, StepCounter, TransformedEnv
from steppe.errors import IgnoredArgumentWarning, NotSupported
from steppe.specs import Binary, Categorical, Composite, Unbounded
from steppe_gym import GymWrapper, make_vec
from steppe_sb3 import as_vec_env, make_vec_env

pytestmark = [pytest.mark.matrix, pytest.mark.filterwarnings("ignore")]


class Seen(gymnasium.Env):
    """Dict observations with an image; an episode has three steps and is truncated or terminated in turns."""

    observation_space = gymnasium.spaces.Dict(
        {
            "image": gymnasium.spaces.Box(0, 255, (36, 36, 3), np.uint8),
            "state": gymnasium.spaces.Box(-1, 1, (2,), np.float32),
        }
    )
    action_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)
    metadata = {"render_modes": ["rgb_array"]}
    g = 1.0

    def __init__(self, render_mode=None):
        self.render_mode = render_mode
        self.episodes = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t, self.episodes = 0, self.episodes + 1
        return self._seen(), {"options": options, "episodes": self.episodes}

    def step(self, action):
        self.t += 1
        ends, odd = self.t == 3, self.episodes % 2 == 1
        return self._seen(), float(action[0]), ends and odd, ends, {"t": self.t, "inner": {"g": self.g}}

    def _seen(self):
        image = self.np_random.integers(0, 256, (36, 36, 3), np.uint8)
        return {"image": image, "state": self.np_random.uniform(-1, 1, 2).astype(np.float32)}

    def render(self):
        return np.full((4, 4, 3), self.t, np.uint8)

    def double(self, value):
        return value * 2


class Told(gymnasium.Env):
    """Counts its steps in the infos."""

    observation_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        self.t = 0
        return np.zeros(2, np.float32), {"t": np.int64(0)}

    def step(self, action):
        self.t += 1
        return np.zeros(2, np.float32), 1.0, False, False, {"t": np.int64(self.t)}


class Masked(EnvBase):
    """Allows one of four actions, another one in each step; the allowed one gives a reward."""

    def __init__(self):
        super().__init__()
        self.observation_spec = Composite(observation=Unbounded(4), action_mask=Binary(4, dtype=torch.bool))
        self.action_spec = Categorical(4)
        self.reward_spec = Unbounded((1,))
        self.action_masks = {"action": "action_mask"}
        self.t = 0

    def _seen(self):
        mask = torch.arange(4) == self.t % 4
        return TensorDict({"observation": mask.float(), "action_mask": mask})

    def _reset(self, tensordict=None, **kwargs):
        self.t = 0
        return self._seen()

    def _step(self, tensordict):
        reward = (tensordict["action"] == self.t % 4).float().reshape(1)
        self.t += 1
        return self._seen().update({"reward": reward, "done": torch.tensor([self.t >= 8])})

    def _set_seed(self, seed):
        pass


def assert_equal(ours, theirs):
    """Compare values with their types, recursively."""
    assert type(ours) is type(theirs) or isinstance(theirs, dict), (ours, theirs)
    if isinstance(theirs, dict):
        assert set(ours) == set(theirs)
        for key in theirs:
            assert_equal(ours[key], theirs[key])
    elif isinstance(theirs, (tuple, list)):
        assert len(ours) == len(theirs)
        for a, b in zip(ours, theirs, strict=True):
            assert_equal(a, b)
    elif isinstance(theirs, np.ndarray):
        assert (ours.dtype, ours.shape) == (theirs.dtype, theirs.shape)
        np.testing.assert_array_equal(ours, theirs)
    else:
        assert ours == theirs


def compare(ours, theirs, steps=60):
    """Step both with the same actions, and compare everything."""
    assert (ours.observation_space, ours.action_space) == (theirs.observation_space, theirs.action_space)
    for env in (ours, theirs):
        env.seed(3)
    assert_equal(ours.reset(), theirs.reset())
    assert_equal(ours.reset_infos, theirs.reset_infos)
    theirs.action_space.seed(0)
    for _ in range(steps):
        actions = np.stack([theirs.action_space.sample() for _ in range(theirs.num_envs)])
        a, b = ours.step(actions), theirs.step(actions)
        for infos in (a[3], b[3]):
            for info in infos:
                info.get("episode", {}).pop("t", None)  # seconds
        assert_equal(a, b)
        assert_equal(ours.reset_infos, theirs.reset_infos)
    ours.close()
    theirs.close()


def vec_env(make, n=3, **settings):
    return as_vec_env(make_vec(make, n, autoreset_mode="same_step", **settings))


@pytest.mark.parametrize("num_processes", [0, 2])
def test_data_equals_that_of_dummy_vec_env(num_processes):
    compare(vec_env(Seen, num_processes=num_processes), DummyVecEnv([Seen] * 3))


@pytest.mark.parametrize("name", ["CartPole-v1", "FrozenLake-v1", "Pendulum-v1"])
def test_make_vec_env_makes_the_environments_of_sb3(name):
    arguments = {"n_envs": 2, "seed": 1, "env_kwargs": {"max_episode_steps": 12}}
    compare(make_vec_env(name, num_processes=0, **arguments), env_util.make_vec_env(name, **arguments))


def test_each_environment_gets_its_options():
    for options in ({"a": 1}, [{"a": 1}, {}, {"a": 2}]):
        ours, theirs = vec_env(Seen, num_processes=0), DummyVecEnv([Seen] * 3)
        for env in (ours, theirs):
            env.set_options(options)
            env.reset()
        found = [[info["options"] for info in env.reset_infos] for env in (ours, theirs)]
        assert found[0] == found[1]
        ours.reset()
        assert [info["options"] for info in ours.reset_infos] == [None] * 3


@pytest.mark.parametrize("num_processes", [0, 2])
def test_attributes_of_some_environments(num_processes):
    env = vec_env(lambda: Monitor(Seen()), num_processes=num_processes)
    env.reset()
    env.set_attr("g", 5.0, indices=[1])
    assert env.get_attr("g") == [1.0, 5.0, 1.0]
    assert env.get_attr("g", 1) == [5.0]
    assert env.env_method("double", 2, indices=[0, 2]) == [4, 4]
    assert env.env_is_wrapped(Monitor) == [True] * 3
    assert env.env_is_wrapped(gymnasium.wrappers.TimeLimit, indices=0) == [False]
    with pytest.raises(AttributeError, match="nothing"):
        env.get_attr("nothing")
    assert (env.rows.has("double"), env.rows.has("nothing")) == (True, False)
    env.close()


def test_frames_are_rendered_in_a_grid():
    env = vec_env(Seen, 4, num_processes=0, render_mode="rgb_array")
    env.reset()
    assert [int(image[0, 0, 0]) for image in env.get_images()] == [0] * 4
    assert env.render().shape == (8, 8, 3)
    env.close()


def test_sb3_s_wrappers_give_the_data_of_sb3():
    def pixels():
        return gymnasium.wrappers.FlattenObservation(gymnasium.make("CartPole-v1"))

    def around(env):
        return VecFrameStack(VecNormalize(VecMonitor(env)), 3)

    compare(around(vec_env(pixels, num_processes=0)), around(DummyVecEnv([pixels] * 3)))


def test_images_are_transposed():
    compare(VecTransposeImage(vec_env(Seen, num_processes=0)), VecTransposeImage(DummyVecEnv([Seen] * 3)), steps=8)


@pytest.mark.parametrize("make", [SerialEnv, ParallelEnv])
def test_a_batch_of_steppe_has_the_data_of_sb3(make):
    ours = as_vec_env(make(3, "gym:CartPole-v1"))
    compare(ours, DummyVecEnv([lambda: gymnasium.make("CartPole-v1")] * 3))


def test_transforms_may_add_infos():
    batch = TransformedEnv(SerialEnv(2, "gym:CartPole-v1"), StepCounter(max_steps=4))
    env = as_vec_env(batch, info_keys=["step_count"])
    env.reset()
    steps = [env.step(np.array([0, 1])) for _ in range(6)]
    assert [int(step[3][0]["step_count"][0]) for step in steps] == [1, 2, 3, 4, 1, 2]
    assert [step[3][0]["TimeLimit.truncated"] for step in steps] == [False, False, False, True, False, False]
    assert steps[3][3][0]["terminal_observation"].shape == (4,)
    env.close()


@pytest.mark.parametrize("make", [SerialEnv, ParallelEnv])
def test_attributes_of_a_batch_of_steppe_are_set(make):
    env = as_vec_env(make(3, "gym:CartPole-v1"))
    env.set_attr("gravity", 5.0, indices=[0, 2])
    assert env.get_attr("gravity") == [5.0, 9.8, 5.0]
    with pytest.raises(AttributeError, match="levity"):
        env.set_attr("levity", 5.0)
    env.close()


def test_infos_of_readers_are_infos():
    env = as_vec_env(SerialEnv(2, lambda: GymWrapper(Told()).auto_register_info_dict()))
    assert isinstance(env.observation_space, gymnasium.spaces.Box)
    env.reset()
    assert [[info["t"].item() for info in env.step(np.zeros(2, np.int64))[3]] for _ in range(2)] == [[1, 1], [2, 2]]
    env.close()


def test_masks_of_actions_are_found():
    env = as_vec_env(SerialEnv(2, Masked))
    env.reset()
    env.step(np.zeros(2, np.int64))
    assert env.has_attr("action_masks")
    assert np.stack(env.env_method("action_masks")).tolist() == [[False, True, False, False]] * 2
    assert not vec_env(Seen, num_processes=0).has_attr("action_masks")
    env.close()


def test_other_modes_are_refused():
    with pytest.raises(ValueError, match="same_step"):
        as_vec_env(make_vec("CartPole-v1", 2, num_processes=0, autoreset_mode="next_step"))


def test_single_environments_are_refused():
    with pytest.raises(NotSupported, match="batch dimension"):
        as_vec_env(Masked())


def test_the_class_of_sb3_is_not_used():
    with pytest.warns(IgnoredArgumentWarning, match="vec_env_cls"):
        make_vec_env("CartPole-v1", 2, vec_env_cls=DummyVecEnv, num_processes=0).close()


def test_monitor_files_are_written(tmp_path):
    env = make_vec_env("CartPole-v1", 2, monitor_dir=str(tmp_path), num_processes=0)
    env.reset()
    for _ in range(60):
        env.step(np.zeros(2, np.int64))
    env.close()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["0.monitor.csv", "1.monitor.csv"]


def test_ppo_runs_on_workers():
    env = make_vec_env("CartPole-v1", 4, seed=0, num_processes=2)
    model = PPO("MlpPolicy", env, n_steps=64, batch_size=64, n_epochs=2, seed=0, device="cpu").learn(512)
    assert (model.num_timesteps, len(model.ep_info_buffer) > 5) == (512, True)
    env.close()


def test_ppo_learns_the_same_as_on_sb3_s_batch():
    weights = []
    for make in (functools.partial(make_vec_env, num_processes=0), env_util.make_vec_env):
        env = make("CartPole-v1", n_envs=2, seed=5)
        model = PPO("MlpPolicy", env, n_steps=32, batch_size=32, n_epochs=2, seed=5, device="cpu").learn(256)
        weights.append([value.clone() for value in model.policy.parameters()])
        env.close()
    assert all(torch.equal(a, b) for a, b in zip(*weights, strict=True))
