"""``steppe record`` as a separate process, with decoded videos."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from steppe import TransformedEnv, make_env
from steppe.transforms import PixelRenderTransform
from tests.forked import python
from tests.limits import CHILD
from tests.transforms.record.decoding import decoded, error

pytestmark = pytest.mark.programs

POLICIES = """
import torch


def still(observation):
    return torch.zeros(*observation.shape[:-1], 6)


def up(tensordict):
    return tensordict.set("action", torch.nn.functional.one_hot(torch.tensor(2), 6))


def wrong(observation):
    return torch.zeros(7)
"""


def steppe(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    (folder / "policies.py").write_text(POLICIES)
    return subprocess.run(
        [*python(), "-W", "ignore", "-m", "steppe", "record", *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        timeout=CHILD,
    )


def rendered(id: str, action: torch.Tensor, steps: int) -> torch.Tensor:
    """The frames of an episode in which the action is always the same, as the environment renders them."""
    env = TransformedEnv(make_env(id, render_mode="rgb_array"), PixelRenderTransform(out_keys=["frame"]))
    env.set_seed(0)
    data = env.rollout(steps, policy=lambda td: td.set("action", action))
    env.close()
    return torch.cat([data["frame"], data["next", "frame"][-1:]])


@pytest.mark.parametrize(
    ("id", "policy", "action", "fps"),
    [
        ("gym:HalfCheetah-v5", "still", torch.zeros(6), 20),
        ("gym:ALE/Pong-v5", "up", torch.tensor([0, 0, 1, 0, 0, 0]), 30),
    ],
)
def test_a_video_of_a_policy_shows_what_the_environment_renders(tmp_path, id, policy, action, fps):
    done = steppe(tmp_path, id, "--policy", f"policies:{policy}", "--out", "it.mp4", "--steps", "20")

    assert done.returncode == 0, done.stderr
    assert f"21 frames, {fps} a second, in it.mp4" in done.stdout
    video, expected = decoded(tmp_path / "it.mp4"), rendered(id, action, 20)
    assert (video.frames.shape, video.fps) == (expected.shape, fps)
    for at in (0, -1):
        assert error(video.frames[at], expected[at]) < 0.02
    assert list(tmp_path.glob(".*")) == []


def test_a_batch_is_recorded_until_each_env_has_ended_once(tmp_path):
    done = steppe(tmp_path, "gym:CartPole-v1", "--num-envs", "3", "--out", "it.gif")

    assert done.returncode == 0, done.stderr
    video = decoded(tmp_path / "it.gif")
    assert video.frames.shape[1:] == (800, 1200, 3)
    assert video.fps == 50  # as CartPole says of itself
    assert f"{len(video.frames)} frames, 50 a second" in done.stdout
    assert len(video.frames) > 10  # an episode of random actions is longer


def test_a_video_has_the_size_of_the_argument(tmp_path):
    done = steppe(tmp_path, "gym:ALE/Pong-v5", "--size", "121x90", "--out", "it.mp4", "--steps", "3")

    assert done.returncode == 0, done.stderr
    video = decoded(tmp_path / "it.mp4")
    assert video.frames.shape == (4, 90, 122, 3)  # H.264 needs an even width
    # Pong's brown field, with the score above it.
    assert video.frames[-1][45:70, 40:80].float().std(dim=(0, 1)).max() < 10


@pytest.mark.parametrize("size", ["320", "0x240", "320x", "-3x4", "a x b"])
def test_a_wrong_size_is_an_error_that_shows_a_right_one(tmp_path, size):
    done = steppe(tmp_path, "gym:ALE/Pong-v5", f"--size={size}", "--out", "it.mp4")

    assert done.returncode == 2
    assert f"such as 320x240, found {size!r}" in done.stderr


def test_a_policy_with_wrong_actions_leaves_no_file(tmp_path):
    done = steppe(tmp_path, "gym:HalfCheetah-v5", "--policy", "policies:wrong", "--out", "it.mp4")

    assert done.returncode == 2
    assert "the policy 'policies:wrong' gives a wrong 'action'" in done.stderr
    assert list(tmp_path.glob("*.mp4")) == []


@pytest.mark.parametrize(
    ("id", "library", "extra"),
    [
        ("gym:Pendulum-v1", "pygame", "gymnasium[classic"),
        ("gym:FrozenLake-v1", "pygame", "gymnasium[toy"),
        ("gym:HalfCheetah-v5", "mujoco", "gymnasium[mujoco]"),
    ],
)
def test_an_error_names_the_extra_that_renders(tmp_path, id, library, extra):
    blocked = f"import sys; sys.modules[{library!r}] = None; from steppe.cli import main"
    program = f"{blocked}; sys.exit(main(['record', {id!r}, '--out', 'it.mp4']))"
    done = subprocess.run([*python(), "-c", program], cwd=tmp_path, capture_output=True, text=True, timeout=CHILD)

    assert done.returncode == 2
    assert f"pip install '{extra}" in done.stderr.replace('"', "'")


def test_an_environment_without_frames_is_an_error(tmp_path):
    done = steppe(tmp_path, "envpool:CartPole-v1", "--out", "it.mp4")

    assert done.returncode == 2
    assert "envpool:CartPole-v1 cannot be recorded" in done.stderr
    assert list(tmp_path.iterdir()) == [tmp_path / "policies.py"]
