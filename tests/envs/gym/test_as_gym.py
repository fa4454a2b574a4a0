"""steppe environments made by the library's ``make``."""

from __future__ import annotations

import numpy as np
import pytest
import torch

gymnasium = pytest.importorskip("gymnasium", minversion="1.0")

from gymnasium.utils.env_checker import check_env  # noqa: E402

from steppe.envs import EnvBase  # noqa: E402
from steppe.errors import IgnoredArgumentWarning, NotSupported  # noqa: E402
from steppe.specs import Bounded, Composite  # noqa: E402
from steppe.transforms import Transform  # noqa: E402
from steppe_gym import GymEnv, as_gym, register_gym  # noqa: E402
from steppe_testing import (  # noqa: E402
    ArrayCountingEnv,
    DynamicSpecEnv,
    MetadataEnv,
    MultiAgentCountingEnv,
    MultiKeyCountingEnv,
    NestedCountingEnv,
    NestedResetEnv,
    TextCountingEnv,
)

pytestmark = pytest.mark.filterwarnings("ignore")


class RewardScaled(Transform):
    """Rewards times ten."""

    def _step(self, tensordict, next_tensordict):
        return next_tensordict.set("reward", next_tensordict["reward"] * 10)


@pytest.mark.parametrize(
    ("name", "module"),
    [
        ("CartPole-v1", "gymnasium"),
        ("Pendulum-v1", "gymnasium"),
        ("FrozenLake-v1", "gymnasium"),
        ("Blackjack-v1", "gymnasium"),
        ("MountainCarContinuous-v0", "gymnasium"),
        ("HalfCheetah-v5", "mujoco"),
        ("ALE/Pong-v5", "ale_py"),
        ("MiniGrid-Empty-5x5-v0", "minigrid"),
    ],
)
def test_the_library_s_checker_passes(name, module):
    pytest.importorskip(module)
    check_env(as_gym(GymEnv(name)), skip_render_check=True)


def test_the_library_s_checker_passes_for_what_was_registered():
    register_gym("Checked-v0", "gym:CartPole-v1", max_episode_steps=50)
    check_env(gymnasium.make("Checked-v0", render_mode="rgb_array").unwrapped)


def test_an_environment_of_our_own_passes_the_checker():
    register_gym("Counted-v0", ArrayCountingEnv)
    check_env(gymnasium.make("Counted-v0").unwrapped, skip_render_check=True)


def test_as_gym_renders_in_the_mode_of_the_environment():
    register_gym("Seen-v0", "gym:CartPole-v1")
    env = gymnasium.wrappers.RenderCollection(gymnasium.make("Seen-v0", render_mode="rgb_array"))
    env.reset(seed=0)
    env.step(0)

    assert [frame.shape for frame in env.render()] == [(400, 600, 3)] * 2


@pytest.mark.parametrize("categorical", [False, True])
def test_a_round_trip_gives_the_library_s_own_data(categorical):
    register_gym("Round-v0", "gym:CartPole-v1", categorical_action_encoding=categorical)
    there, back = gymnasium.make("CartPole-v1"), gymnasium.make("Round-v0")
    assert back.observation_space == there.observation_space
    assert back.action_space == there.action_space

    np.testing.assert_array_equal(there.reset(seed=3)[0], back.reset(seed=3)[0])
    for _ in range(30):
        action = 1
        a, b = there.step(action), back.step(action)
        np.testing.assert_array_equal(a[0], b[0])
        assert a[1:4] == b[1:4]
        if a[2]:
            break


@pytest.mark.parametrize("backend", ["gymnasium", "gym"])
def test_dict_observations_make_a_dict_of_one_entry(backend):
    library = pytest.importorskip(backend)
    env = as_gym(ArrayCountingEnv(), backend=backend, dict_observations=True)
    assert isinstance(env.observation_space, library.spaces.Dict)
    first = env.reset(seed=0)[0]
    assert list(first) == ["observation"]
    assert (env.step(env.action_space.sample())[0]["observation"] == first["observation"] + 1).all()


def test_make_chooses_the_observations_of_a_registered_id():
    register_gym("Chosen-v0", "gym:CartPole-v1", dict_observations=True)
    for dict_observations in (True, False):
        env = gymnasium.make("Chosen-v0", **({} if dict_observations else {"dict_observations": False}))
        assert isinstance(env.reset(seed=0)[0], dict) is dict_observations
        env.close()


def test_a_registered_environment_is_truncated_by_the_library():
    register_gym("Short-v0", lambda **kwargs: GymEnv("Pendulum-v1", **kwargs), max_episode_steps=4)
    env = gymnasium.make("Short-v0")
    env.reset(seed=0)
    ended = [env.step(env.action_space.sample())[3] for _ in range(4)]

    assert ended == [False, False, False, True]


def test_gymnasiums_vector_environments_accept_as_gym():
    register_gym("Vectored-v0", "gym:CartPole-v1")
    vector = gymnasium.make_vec("Vectored-v0", 3, vectorization_mode="sync")
    observation, _ = vector.reset(seed=0)

    assert observation.shape == (3, 4)
    assert vector.step(vector.action_space.sample())[1].tolist() == [1, 1, 1]


def test_entries_go_to_the_info():
    class Informed(GymEnv):
        def __init__(self):
            super().__init__("CartPole-v1")
            self.observation_spec = Composite(
                {**dict(self.full_observation_spec.items()), "angle": Bounded(-1, 1, (1,))}
            )

        def read_obs(self, observations):
            return {**super().read_obs(observations), "angle": torch.tensor([observations[2]])}

    env = as_gym(Informed(), info_keys=["angle"])
    observation, info = env.reset(seed=0)

    assert isinstance(env.observation_space, gymnasium.spaces.Box)
    assert info["angle"].item() == observation[2]


def test_as_gym_returns_tensors_on_request():
    observation, _ = as_gym(GymEnv("CartPole-v1"), to_numpy=False).reset(seed=0)

    assert isinstance(observation, torch.Tensor)


def test_a_batch_is_refused():
    with pytest.raises(NotSupported, match="is a batch of"):
        as_gym(GymEnv("CartPole-v1", 2))


@pytest.mark.parametrize("cls", [NestedCountingEnv, NestedResetEnv, MultiAgentCountingEnv, TextCountingEnv])
def test_entries_may_be_nested_or_text(cls):
    env = as_gym(cls())
    check_env(env, skip_render_check=True)

    env.reset(seed=0)
    length = cls().rollout(50).shape[0]
    ended = [any(env.step(env.action_space.sample())[2:4]) for _ in range(length)]
    assert ended == [False] * (length - 1) + [True]


@pytest.mark.parametrize(
    ("cls", "text"),
    [
        (MultiKeyCountingEnv, "has one reward, but .* has 3"),
        (MetadataEnv, "Non-tensor data has a space only if"),
        (DynamicSpecEnv, "first size"),
    ],
)
def test_as_gym_refuses_data_without_a_space(cls, text):
    with pytest.raises(NotSupported, match=text):
        as_gym(cls())


def test_the_old_library():
    gym = pytest.importorskip("gym")
    register_gym("Old-v0", "gym:CartPole-v1", backend="gym")
    env = gym.make("Old-v0", disable_env_checker=True)
    raw = gym.make("CartPole-v1", disable_env_checker=True)

    assert isinstance(env.action_space, gym.spaces.Discrete)
    np.testing.assert_array_equal(env.reset(seed=1)[0], raw.reset(seed=1)[0])


def test_an_environment_class_registers_itself():
    ArrayCountingEnv.register_gym("Itself-v0", max_episode_steps=3, start=2)
    env = gymnasium.make("Itself-v0")

    observation, _ = env.reset()
    assert observation == 2
    assert [env.step(env.action_space.sample())[3] for _ in range(3)] == [False, False, True]
    env.close()


def test_a_registered_class_gives_tensors_or_arrays():
    """An environment made by gymnasium gives arrays with to_numpy=True, else tensors."""
    ArrayCountingEnv.register_gym("Tensors-v0", disable_env_checker=True, order_enforce=False)
    with_tensors, with_arrays = gymnasium.make("Tensors-v0"), gymnasium.make("Tensors-v0", to_numpy=True)

    assert isinstance(with_tensors.reset()[0], torch.Tensor)
    assert isinstance(with_arrays.reset()[0], np.ndarray)
    assert with_tensors.spec.disable_env_checker
    assert with_tensors.spec.order_enforce is False
    with_tensors.close()
    with_arrays.close()


def test_options_unknown_to_the_library_warn():
    with pytest.warns(IgnoredArgumentWarning, match="autoreset has no effect: this version of gymnasium"):
        ArrayCountingEnv.register_gym("Choices-v0", autoreset=True)


def test_making_it_takes_a_transform_and_keys_of_the_info():
    EnvBase.register_gym("Made-v0", entry_point="gym:CartPole-v1", to_numpy=True)
    env = gymnasium.make("Made-v0", transform=RewardScaled(), info_keys=["observation"], disable_env_checker=True)

    observation, info = env.reset(seed=0)
    assert observation == {}
    assert info["observation"].shape == (4,)
    assert env.step(0)[1] == 10
    env.close()


def test_a_registered_environment_gets_its_transform():
    EnvBase.register_gym("Scaled-v0", entry_point="gym:CartPole-v1", transform=RewardScaled())
    one, other = gymnasium.make("Scaled-v0"), gymnasium.make("Scaled-v0")
    one.reset(seed=0)

    assert one.step(0)[1] == 10
    other.close()
    one.close()
