"""dm_control's environments return the library's data, on all code paths."""

from __future__ import annotations

import numpy as np
import pytest
import torch

pytest.importorskip("dm_control")

from dm_control import suite

from steppe import ParallelEnv, SerialEnv, SyncDataCollector, check_env_specs, make_env
from steppe.envs import next_seed
from steppe.registry import env_factory
from steppe_dm_control import DMControlEnv, DMControlWrapper

pytestmark = pytest.mark.matrix

STEPS = 45
SHORT = {"time_limit": 0.2}


def random_actions(spec, steps=STEPS, seed=0):
    generator = np.random.default_rng(seed)
    return generator.uniform(spec.minimum, spec.maximum, (steps, *spec.shape))


def played(env, actions, *, frame_skip=1):
    """Root, following, reward, terminated, truncated of each step of the raw library, resetting at ends."""
    timestep = env.reset()
    rows = []
    for action in actions:
        root = {key: np.array(value) for key, value in timestep.observation.items()}
        reward = 0.0
        for _ in range(frame_skip):
            timestep = env.step(action)
            reward += timestep.reward
            if timestep.last():
                break
        after = {key: np.array(value) for key, value in timestep.observation.items()}
        ended = timestep.last()
        rows.append((root, after, reward, ended and timestep.discount == 0, ended and timestep.discount == 1))
        if ended:
            timestep = env.reset()
    return rows


def assert_equal_to_library(data, rows):
    assert data.shape == (len(rows),)
    for t, (root, after, reward, terminated, truncated) in enumerate(rows):
        for expected, found in ((root, data[t]), (after, data[t]["next"])):
            for key, value in expected.items():
                np.testing.assert_array_equal(value.reshape(value.shape or (1,)), found[key].numpy(), err_msg=f"{t}")
        following = data[t]["next"]
        assert following["reward"].item() == np.float32(reward), t
        assert (following["terminated"].item(), following["truncated"].item()) == (terminated, truncated), t
        assert following["done"].item() == (terminated or truncated), t


@pytest.mark.parametrize(
    ("domain", "task"), [("cheetah", "run"), ("walker", "walk"), ("hopper", "hop"), ("reacher", "easy")]
)
@pytest.mark.parametrize("frame_skip", [1, 3])
def test_a_rollout_equals_the_library_over_ends_of_episodes(domain, task, frame_skip):
    raw = suite.load(domain, task, task_kwargs={"random": 5, "time_limit": 0.3})
    actions = random_actions(raw.action_spec())
    env = DMControlEnv(domain, task, time_limit=0.3, frame_skip=frame_skip)
    env.set_seed(5)

    data = env.rollout(STEPS, actions=torch.from_numpy(actions), break_when_any_done=False)

    assert data["next", "done"].any()
    assert_equal_to_library(data, played(raw, actions, frame_skip=frame_skip))


def test_a_step_loop_equals_the_library():
    raw = suite.load("cheetah", "run", task_kwargs={"random": 7, **SHORT})
    actions = random_actions(raw.action_spec())
    env = make_env("dm:cheetah-run", **SHORT)
    env.set_seed(7)

    root, steps = env.reset(), []
    for action in torch.from_numpy(actions):
        root["action"] = action
        step, root = env.step_and_maybe_reset(root)
        steps.append(step)

    assert_equal_to_library(torch.stack(steps), played(raw, actions))


@pytest.mark.parametrize("kind", ["serial", "parallel"])
def test_rows_of_a_batch_equal_the_library(kind):
    factory = env_factory("dm:cheetah-run", **SHORT)
    batch = SerialEnv(3, factory) if kind == "serial" else ParallelEnv(3, factory, num_processes=2)
    seeds = [11, next_seed(11), next_seed(next_seed(11))]
    raws = [suite.load("cheetah", "run", task_kwargs={"random": seed, **SHORT}) for seed in seeds]
    actions = np.stack([random_actions(raws[0].action_spec(), seed=row) for row in range(3)])
    batch.set_seed(11)

    data = batch.rollout(STEPS, actions=torch.from_numpy(actions).transpose(0, 1), break_when_any_done=False)

    for row, raw in enumerate(raws):
        assert_equal_to_library(data[row], played(raw, actions[row]))
    batch.close()


def test_a_collector_equals_the_library():
    env = make_env("dm:cheetah-run", **SHORT)
    env.set_seed(13)
    collector = SyncDataCollector(env, None, frames_per_batch=STEPS // 2, total_frames=STEPS // 2 * 2)
    data = torch.cat([batch.clone() for batch in collector], -1)
    collector.shutdown()
    raw = suite.load("cheetah", "run", task_kwargs={"random": 13, **SHORT})

    assert_equal_to_library(data, played(raw, data["action"].numpy()))


def test_both_code_paths_give_equal_data():
    class Overridden(DMControlEnv):
        def read_obs(self, observations):
            return super().read_obs(observations)

    fast, slow = (kind("hopper", "hop", frame_skip=2, time_limit=0.5) for kind in (DMControlEnv, Overridden))
    assert fast.row_writer is not None
    assert slow.row_writer is None
    actions = torch.from_numpy(random_actions(fast._env.action_spec()))
    found = []
    for env in (fast, slow):
        env.set_seed(0)
        found.append(env.rollout(STEPS, actions=actions, break_when_any_done=False))
    assert (found[0] == found[1]).all()


def test_time_limits_truncate_and_zero_discounts_terminate():
    limited = DMControlEnv("cheetah", "run", **SHORT).rollout(100)["next"]
    assert (limited["truncated"][-1].item(), limited["terminated"][-1].item()) == (True, False)

    raw = suite.load("cheetah", "run", task_kwargs={"random": 0})
    raw.task.get_termination = lambda physics: 0.0 if physics.time() > 0.05 else None
    ended = DMControlWrapper(raw).rollout(100)["next"]
    assert len(ended) < 10
    assert (ended["truncated"][-1].item(), ended["terminated"][-1].item()) == (False, True)


@pytest.mark.slow
@pytest.mark.parametrize(("domain", "task"), suite.ALL_TASKS)
def test_each_task_of_the_suite_fits_its_specs(domain, task):
    env = DMControlEnv(domain, task)

    assert env.row_writer is not None
    env.set_seed(0)
    data = env.rollout(2)["next"]
    for key in env.observation_spec.keys():
        assert env.observation_spec[key].is_in(data[key]), key
    assert data["reward"].isfinite().all()
    env.close()


def test_locomotion_equals_the_library():
    from dm_control.locomotion.examples import basic_cmu_2019

    raw = basic_cmu_2019.cmu_humanoid_go_to_target(random_state=np.random.RandomState(4))
    env = make_env("dm:locomotion/cmu_humanoid_go_to_target", random=4)
    actions = random_actions(raw.action_spec(), 4)

    data = env.rollout(4, actions=torch.from_numpy(actions))

    assert_equal_to_library(data, played(raw, actions))
    env.close()


@pytest.mark.slow
def test_cameras_of_locomotion_are_observations():
    # Its data is not compared: this task draws from more than its random state.
    env = make_env("dm:locomotion/rodent_two_touch")

    check_env_specs(env, seed=0)
    assert env.observation_spec["walker/egocentric_camera"].dtype is torch.uint8
    env.close()


def test_manipulation_equals_the_library():
    from dm_control import manipulation

    raw = manipulation.load("reach_site_features", seed=3)
    env = make_env("dm:manipulation/reach_site_features")
    actions = random_actions(raw.action_spec(), 5)
    env.set_seed(3)

    data = env.rollout(5, actions=torch.from_numpy(actions))

    assert_equal_to_library(data, played(raw, actions))
    assert data["jaco_arm/joints_pos"].shape == (5, 1, 6, 2)


def test_a_step_after_the_end_has_no_reward_of_the_library():
    env = DMControlEnv("cheetah", "run", time_limit=0.02)
    td = env.rollout(10)[-1]["next"]
    assert td["done"].item()

    after = env.step(env.rand_action(td.exclude("reward")))["next"]

    assert (after["reward"].item(), after["done"].item()) == (0.0, False)
