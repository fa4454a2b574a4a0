"""Rendered frames are observations like any other."""

from __future__ import annotations

import importlib.util
import os
import subprocess

import numpy as np
import pytest
import torch

gymnasium = pytest.importorskip("gymnasium", minversion="1.0")

from steppe.errors import NotSupported  # noqa: E402
from steppe_gym import GymEnv, GymWrapper  # noqa: E402
from tests.forked import python  # noqa: E402
from tests.limits import CHILD  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")

IDS = {"CartPole-v1": "pygame", "LunarLander-v3": "Box2D", "InvertedPendulum-v5": "mujoco", "ALE/Pong-v5": "ale_py"}


def played(name, seed, actions):
    """Frames of the library itself: ``(first, following)``."""
    raw = gymnasium.make(name, render_mode="rgb_array")
    raw.reset(seed=seed)
    first = raw.render()
    following = []
    for action in actions:
        raw.step(action)
        following.append(np.array(raw.render()))
    raw.close()
    return np.array(first), following


@pytest.mark.parametrize("name", IDS)
def test_frames_are_the_library_s_own(name):
    if importlib.util.find_spec(IDS[name]) is None:
        pytest.skip(f"{IDS[name]} is not installed")
    env = GymEnv(name, from_pixels=True, categorical_action_encoding=True)
    spec = env.full_observation_spec["pixels"]
    assert (spec.dtype, spec.ndim, spec.shape[-1]) == (torch.uint8, 3, 3)
    assert env.observation_keys == ["pixels"]
    assert env.row_writer is not None

    action = env.action_spec.zero()
    native = action.numpy() if action.ndim else int(action)
    env.set_seed(0)
    data = env.rollout(3, actions=torch.stack([action] * 3))
    first, following = played(name, 0, [native] * 3)
    np.testing.assert_array_equal(first, data["pixels"][0].numpy())
    for expected, found in zip(following, data["next", "pixels"], strict=True):
        np.testing.assert_array_equal(expected, found.numpy())
    env.close()


def test_pixels_of_a_batch():
    env = GymEnv("CartPole-v1", 2, from_pixels=True)
    data = env.rollout(2)

    assert data["next", "pixels"].shape == (2, 2, 400, 600, 3)


def test_an_environment_made_without_render_mode_is_refused():
    with pytest.raises(NotSupported, match="make it with render_mode='rgb_array'"):
        GymWrapper(gymnasium.make("CartPole-v1"), from_pixels=True)


def test_render_gives_the_library_s_frame():
    env = GymEnv("CartPole-v1", render_mode="rgb_array")
    env.reset()

    assert env.render().shape == (400, 600, 3)


def test_mujoco_renders_without_a_display():
    pytest.importorskip("mujoco")
    hidden = ("MUJOCO_GL", "DISPLAY", "WAYLAND_DISPLAY", "SDL_VIDEODRIVER")
    code = (
        "from steppe_gym import GymEnv; e = GymEnv('InvertedPendulum-v5', from_pixels=True);"
        "print(bool(e.reset()['pixels'].any())); e.close()"
    )
    done = subprocess.run(
        [*python(), "-W", "ignore", "-c", code],
        env={key: value for key, value in os.environ.items() if key not in hidden},
        capture_output=True,
        text=True,
        timeout=CHILD,
    )

    assert done.stdout.strip() == "True", done.stderr
