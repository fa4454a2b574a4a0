"""Environments of Safety-Gymnasium in steppe, compared with the library."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest
import torch

# With MUJOCO_GL=egl, mujoco loads Mesa's LLVM. Loading that of Triton afterwards, as tensordict does with a CUDA build
# of torch, crashes the process.
pytest.importorskip("tensordict")
pytest.importorskip("safety_gymnasium")

import safety_gymnasium

from steppe import ParallelEnv, SerialEnv, SyncDataCollector, make_env
from steppe.envs import next_seed
from steppe.errors import ArgumentError, EnvNotFound
from steppe_safety_gymnasium import SafetyGymnasiumEnv, SafetyGymnasiumWrapper
from tests.limits import CHILD

pytestmark = [pytest.mark.library, pytest.mark.matrix, pytest.mark.filterwarnings("ignore")]

NAME = "SafetyPointGoal1-v0"


def assert_equal_to_library(data, seed, name=NAME):
    """Take the actions of data ``[T]`` with the library, and compare all entries."""
    raw = safety_gymnasium.make(name)
    seen, _ = raw.reset(seed=seed)
    for t in range(len(data)):
        row, following = data[t], data[t]["next"]
        np.testing.assert_array_equal(row["observation"].numpy(), seen)
        seen, reward, cost, terminated, truncated, _ = raw.step(row["action"].numpy())
        np.testing.assert_array_equal(following["observation"].numpy(), seen)
        assert following["reward"].item() == np.float32(reward)
        assert following["cost"].item() == np.float32(cost)
        assert following["terminated"].item() is bool(terminated)
        assert following["truncated"].item() is bool(truncated)
        if terminated or truncated:
            seen, _ = raw.reset()


def test_a_rollout_equals_the_library_over_several_episodes():
    env = make_env(f"safety:{NAME}", max_episode_steps=40)
    env.set_seed(3)
    data = env.rollout(30)

    assert data["cost"][0] == 0
    assert_equal_to_library(data, 3)
    longer = SafetyGymnasiumEnv("SafetyPointButton2-v0")
    longer.set_seed(1)
    data = longer.rollout(1500, break_when_any_done=False)
    assert data["next", "cost"].sum() > 0
    assert data["next", "truncated"].sum() == 1
    assert_equal_to_library(data, 1, "SafetyPointButton2-v0")


@pytest.mark.parametrize("kind", [SerialEnv, ParallelEnv])
def test_rows_of_a_batch_equal_the_library(kind):
    batch = kind(2, f"safety:{NAME}")
    batch.set_seed(5)
    data = batch.rollout(40, break_when_any_done=False)
    batch.close()

    for rows, seed in zip(data, (5, next_seed(5)), strict=True):
        assert_equal_to_library(rows, seed)


def test_a_collector_equals_the_library():
    env = SafetyGymnasiumEnv(NAME)
    env.set_seed(2)
    collector = SyncDataCollector(env, None, frames_per_batch=40, total_frames=80)
    data = torch.cat([batch.clone() for batch in collector], -1)
    collector.shutdown()

    assert_equal_to_library(data, 2)


def test_repeated_actions_add_up_costs():
    class Costly:
        observation_space = safety_gymnasium.make(NAME).observation_space
        action_space = safety_gymnasium.make(NAME).action_space

        def __init__(self):
            self.steps = 0

        def reset(self, *, seed=None, options=None):
            return self.observation_space.sample(), {}

        def step(self, action):
            self.steps += 1
            return self.observation_space.sample(), 2.0, 0.5, self.steps == 5, False, {}

    env = SafetyGymnasiumWrapper(Costly(), frame_skip=3)
    data = env.rollout(2)
    assert data["next", "cost"][:, 0].tolist() == [1.5, 1.0]
    assert data["next", "reward"][:, 0].tolist() == [6.0, 4.0]


def test_the_library_can_be_imported_before_steppe():
    """Mesa's LLVM, which mujoco loads with EGL, and that of Triton do not meet."""
    program = (
        "import safety_gymnasium\nfrom steppe import make_env\n"
        f"print(make_env('safety:{NAME}').rollout(2, break_when_any_done=False).shape)"
    )
    environment = {**os.environ, "MUJOCO_GL": "egl"}
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=CHILD, env=environment
    )

    assert (done.returncode, done.stdout) == (0, "torch.Size([2])\n"), done.stderr


def test_a_wrong_frame_skip_is_refused():
    env = safety_gymnasium.make(NAME)
    for count in (0, -2, 1.5):
        with pytest.raises(ArgumentError, match=rf"frame_skip must be a whole number >= 1, found {count}"):
            SafetyGymnasiumWrapper(env, frame_skip=count)


def test_an_unknown_name_gets_a_close_one():
    with pytest.raises(EnvNotFound, match="Did you mean 'SafetyPointGoal"):
        make_env("safety:SafetyPointGoal9-v0")
    with pytest.raises(EnvNotFound):
        make_env("safety:CartPole-v1")
