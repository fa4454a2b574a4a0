"""Data equals the library's under every version of gym and gymnasium."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from steppe.envs import check_env_specs, default_info_dict_reader
from steppe.errors import EnvNotFound
from steppe.specs import Unbounded
from steppe_gym import GymEnv, GymWrapper, register_gym

pytestmark = pytest.mark.matrix

BASES = ["CartPole", "Pendulum", "MountainCar", "MountainCarContinuous", "Acrobot", "FrozenLake", "Taxi", "Blackjack"]
STEPS = 260


def integers(value, spec_shape):
    """A library's observation as one array: tuples of integers too."""
    return np.asarray(value).astype(np.int64).reshape(spec_shape)


def assert_rows_equal(rows, observations, following, reward, terminated, truncated):
    for t, (root, after, gain, end, cut) in enumerate(rows):
        for expected, found in ((root, observations[t]), (after, following[t])):
            np.testing.assert_array_equal(np.asarray(expected, found.numpy().dtype), found.numpy(), err_msg=str(t))
        assert np.float32(gain) == reward[t].item(), t
        assert (end, cut) == (terminated[t].item(), truncated[t].item()), t


def encoded(env, actions):
    """The library's actions in the layout of the action spec, ``[T, ...]``."""
    return torch.stack([torch.as_tensor(action, dtype=env.action_spec.dtype) for action in actions])


def make(raw, base):
    name = raw.newest(base)
    env = GymEnv(name, categorical_action_encoding=True)
    if len(env.observation_keys) > 1:
        pytest.skip("compared part by part in test_tuple_observations")
    return name, env


@pytest.mark.parametrize("base", [base for base in BASES if base != "Blackjack"])
@pytest.mark.parametrize("seed", [0, 7])
def test_rollout_equals_the_library_over_episode_ends(raw, random_actions, base, seed):
    name, env = make(raw, base)
    actions = random_actions(raw.make(name).action_space, STEPS)

    env.set_seed(seed)
    data = env.rollout(STEPS, actions=encoded(env, actions), break_when_any_done=False)

    rows = raw.play(raw.make(name), seed, actions)
    after = data["next"]
    assert_rows_equal(
        rows, data["observation"], after["observation"], after["reward"], after["terminated"], after["truncated"]
    )


@pytest.mark.parametrize("base", ["CartPole", "Pendulum", "FrozenLake"])
def test_step_loop_equals_the_library_over_episode_ends(raw, random_actions, base):
    name, env = make(raw, base)
    actions = random_actions(raw.make(name).action_space, STEPS)

    env.set_seed(3)
    root, steps = env.reset(), []
    for action in encoded(env, actions):
        root["action"] = action
        step, root = env.step_and_maybe_reset(root)
        steps.append(step)

    rows = raw.play(raw.make(name), 3, actions)
    column = [[step[key] for step in steps] for key in ("observation", ("next", "observation"), ("next", "reward"))]
    flags = [[step["next", key] for step in steps] for key in ("terminated", "truncated")]
    assert_rows_equal(rows, *column, *flags)


def test_both_code_paths_give_equal_data(raw, random_actions):
    name = raw.newest("CartPole")

    class Overridden(GymEnv):
        def read_obs(self, observations):
            return super().read_obs(observations)

    fast, slow = GymEnv(name), Overridden(name)
    assert fast.row_writer is not None
    assert slow.row_writer is None
    actions = torch.nn.functional.one_hot(torch.arange(STEPS) % 2, 2)
    found = []
    for env in (fast, slow):
        env.set_seed(0)
        found.append(env.rollout(STEPS, actions=actions, break_when_any_done=False))
    assert (found[0] == found[1]).all()


def test_discrete_actions_are_one_hot_by_default(raw):
    env = GymEnv(raw.newest("CartPole"))

    assert env.action_spec.shape == (2,)
    assert env.action_spec.dtype is torch.int64


def test_tuple_observations(raw, random_actions):
    name = raw.newest("Blackjack")
    env = GymEnv(name)
    actions = random_actions(raw.make(name).action_space, 40)

    env.set_seed(1)
    one_hot = torch.nn.functional.one_hot(torch.tensor(actions), 2)
    data = env.rollout(40, actions=one_hot, break_when_any_done=False)

    for t, (root, after, *_) in enumerate(raw.play(raw.make(name), 1, actions)):
        for part in range(3):
            assert data["observation", str(part)][t].argmax().item() == int(root[part])
            assert data["next", "observation", str(part)][t].argmax().item() == int(after[part])


@pytest.mark.parametrize("base", ["CartPole", "Pendulum"])
def test_a_batch_equals_single_environments_over_episode_ends(raw, random_actions, base):
    name, steps = raw.newest(base), 420 if base == "Pendulum" else 100
    env = GymEnv(name, 3, categorical_action_encoding=True)
    space = raw.make(name).action_space
    actions = [random_actions(space, 3 * steps)[row::3] for row in range(3)]

    env.set_seed(5)
    given = torch.stack([encoded(env, row) for row in actions], 1)
    data = env.rollout(steps, actions=given, break_when_any_done=False)

    assert data.batch_size == (3, steps)
    for row in range(3):
        part, after = data[row], data[row]["next"]
        assert_rows_equal(
            raw.play(raw.make(name), 5 + row, actions[row]),
            part["observation"],
            after["observation"],
            after["reward"],
            after["terminated"],
            after["truncated"],
        )
    assert data["next", "done"].sum() >= 6


def test_a_wrapped_vector_environment_says_what_is_no_transition(raw):
    name, steps = raw.newest("CartPole"), 60
    vector = raw.module.vector.SyncVectorEnv([lambda: raw.make(name)] * 2)
    env = GymWrapper(vector, categorical_action_encoding=True)

    env.set_seed(5)
    data = env.rollout(steps, actions=torch.ones(steps, 2, dtype=torch.int64), break_when_any_done=False)

    row, after = data[0], data[0]["next"]
    played = list(raw.play(raw.make(name), 5, [1] * steps))
    if "valid" in env.observation_keys:
        assert (raw.name, raw.version.release[:2]) == ("gymnasium", (1, 0))
        kept = after["valid"].squeeze(-1)
        # Where all rows end at once, all are reset at once, and nothing is lost.
        assert 0 < (~kept).sum() <= after["done"].sum()
        assert not after["reward"][~kept].any()
        row, after = row[kept], after[kept]
    found = after["observation"].numpy()
    for t in range(row.shape[0]):
        ended = after["done"][t].item()
        assert ended == (played[t][3] or played[t][4])
        if ended and raw.seeds_by_method:
            assert np.isnan(found[t]).all()
        else:
            np.testing.assert_array_equal(np.asarray(played[t][1], np.float32), found[t])


def test_specs_hold(raw):
    check_env_specs(GymEnv(raw.newest("Pendulum")))


def test_wrapper_takes_an_environment_of_the_library(raw):
    env = GymWrapper(raw.make(raw.newest("CartPole")))

    env.set_seed(0)
    assert env.rollout(5)["observation"].shape[-1] == 4
    assert env.lib is raw.module


def test_frame_skip_sums_rewards_and_stops_at_the_end(raw):
    name = raw.newest("CartPole")
    env = GymEnv(name, frame_skip=4, categorical_action_encoding=True)
    env.set_seed(0)
    data = env.rollout(100, actions=torch.ones(100, dtype=torch.int64))

    plain = raw.make(name)
    raw.reset(plain, 0)
    played = []
    while True:
        observation, reward, terminated, truncated = raw.step(plain, 1)
        played.append(reward)
        if terminated or truncated:
            break
    assert data["next", "reward"].sum().item() == sum(played)
    assert data.shape[0] == -(-len(played) // 4)
    np.testing.assert_array_equal(data["next", "observation"][-1].numpy(), np.asarray(observation, np.float32))


def test_attributes_fall_through_wrappers(raw):
    assert GymEnv(raw.newest("CartPole")).gravity == 9.8


def test_a_time_limit_truncates(raw):
    env = GymEnv(raw.newest("Pendulum"))
    data = env.rollout(300)

    assert data.shape[0] == 200
    last = data["next"][-1]
    assert (last["truncated"].item(), last["terminated"].item(), last["done"].item()) == (True, False, True)


def test_closing(raw):
    env = GymEnv(raw.newest("CartPole"))
    env.close()

    assert env.is_closed


def test_a_wrong_id_is_answered(raw):
    with pytest.raises(EnvNotFound, match="Did you mean 'CartPole-v1'"):
        GymEnv("CartPool-v1")
    with pytest.raises(EnvNotFound, match=r"has no environment 'MountainCar-v77'; it has 'MountainCar-v0'"):
        GymEnv("MountainCar-v77")


def test_names_match_the_library(raw):
    assert set(raw.ids()) <= set(GymEnv.available_envs)


def test_chosen_infos_are_entries(raw):
    name = raw.newest("Pendulum")
    env = GymEnv(name)
    reader = default_info_dict_reader(["TimeLimit.truncated"], spec=[Unbounded((1,))])
    env.set_info_dict_reader(reader)

    assert env.rollout(2)["next", "TimeLimit.truncated"].flatten().tolist() == [0, 0]


def test_a_registered_environment_is_made_by_the_library(raw):
    id = f"Round{raw.name}-v0"
    if id not in raw.ids():
        register_gym(id, "gym:CartPole-v1", max_episode_steps=7)
    there, back = raw.make("CartPole-v1"), raw.make(id)

    np.testing.assert_array_equal(np.float32(raw.reset(there, 3)), raw.reset(back, 3))
    for t in range(7):
        a, b = raw.step(there, t % 2), raw.step(back, t % 2)
        np.testing.assert_array_equal(np.float32(a[0]), b[0])
    assert b[3]


def test_frames_are_observations(raw):
    if raw.seeds_by_method:
        pytest.skip("this version renders in a window")
    pytest.importorskip("pygame")
    if raw.name == "gymnasium" and raw.version.major == 0 and np.lib.NumpyVersion(np.__version__) >= "2.0.0":
        pytest.skip("this version renders with numpy 1")
    env = GymEnv(raw.newest("CartPole"), from_pixels=True, pixels_only=False)
    data = env.rollout(2)

    assert data["pixels"].shape[-1] == 3
    assert data["pixels"].dtype is torch.uint8
    assert (data["pixels"] != data["pixels"][0, 0, 0]).any()


def test_the_library_s_own_processes_give_the_same_batch(raw):
    name, found = raw.newest("CartPole"), []
    for mode in ("sync", "async"):
        env = GymEnv(name, 2, vectorization_mode=mode, categorical_action_encoding=True)
        env.set_seed(0)
        given = torch.ones(12, 2, dtype=torch.int64)
        found.append(env.rollout(12, actions=given, break_when_any_done=False)["next"])
        env.close()

    ended = found[0]["done"].squeeze(-1)
    assert ended.any()
    for key in ("reward", "done", "observation"):
        a, b = (data[key].nan_to_num() for data in found)
        assert torch.equal(a, b), key
