"""Decoded videos, compared with the rendered frames."""

from __future__ import annotations

import pytest
import torch

from steppe import ParallelEnv, SerialEnv, TransformedEnv, make_env
from steppe.loggers import CSVLogger
from steppe.transforms import PixelRenderTransform, VideoRecorder
from tests.transforms.record.decoding import decoded, error

pytestmark = pytest.mark.matrix

# Mean error of a frame: H.264 blurs colours, a GIF has 256 of them.
LOSS = {"mp4": 0.02, "gif": 0.02}


@pytest.mark.parametrize("video_format", ["mp4", "gif"])
@pytest.mark.parametrize(
    ("id", "kwargs", "size"),
    [
        ("gym:HalfCheetah-v5", {"from_pixels": True, "pixels_only": False}, (480, 480)),
        ("gym:ALE/Pong-v5", {}, (210, 160)),
    ],
)
def test_a_video_holds_the_frames_that_were_rendered(tmp_path, id, kwargs, size, video_format):
    env = make_env(id, **kwargs)
    recorder = VideoRecorder(CSVLogger("run", tmp_path, video_format), "video", skip=1, fps=25)
    env = TransformedEnv(env, recorder)
    env.set_seed(0)
    data = env.rollout(24)
    recorder.dump()

    video = decoded(tmp_path / f"run/videos/video_0.{video_format}")
    assert video.frames.shape == (25, *size, 3)
    assert video.fps == 25
    assert error(video.frames[0], data["pixels"][0]) < LOSS[video_format]
    assert error(video.frames[-1], data["next", "pixels"][-1]) < LOSS[video_format]
    assert not torch.equal(data["pixels"][0], data["next", "pixels"][-1])
    env.close()


def cartpole() -> TransformedEnv:
    return TransformedEnv(make_env("gym:CartPole-v1", render_mode="rgb_array"), PixelRenderTransform())


@pytest.mark.parametrize("batch", [SerialEnv, ParallelEnv])
def test_a_video_shows_each_environment_of_a_batch_in_its_tile(tmp_path, batch):
    env = TransformedEnv(batch(3, cartpole), VideoRecorder(CSVLogger("run", tmp_path, "mp4"), "grid"))
    env.set_seed(0)
    data = env.rollout(5)
    env.transform.dump()
    env.close()

    frames = decoded(tmp_path / "run/videos/grid_0.mp4").frames
    assert frames.shape == (6, 800, 1200, 3)
    last = data["next", "pixels"][:, -1]
    places = [frames[-1, :400, :600], frames[-1, :400, 600:], frames[-1, 400:, :600]]
    for place, expected in zip(places, last, strict=True):
        assert error(place, expected) < LOSS["mp4"]
    assert error(frames[-1, 400:, 600:], torch.zeros(400, 600, 3)) < LOSS["mp4"]


def test_a_partial_reset_keeps_the_tiles_of_other_rows():
    """If some environments are reset, the tiles of the others stay."""
    recorder = VideoRecorder(None, None)
    env = TransformedEnv(SerialEnv(2, cartpole), recorder)
    env.set_seed(1)
    data = env.rollout(40, break_when_any_done=False)
    ends = data["next", "done"].squeeze(-1)
    steps = ends.any(0).nonzero().flatten()
    assert len(recorder.obs) == 41 + int((ends.any(0)[:-1]).sum())
    first = int(steps[0])
    row = int(ends[:, first].nonzero()[0])
    other = 1 - row
    shown = recorder.obs[first + 2].movedim(0, -1).unflatten(1, (2, 600))  # after the reset
    assert torch.equal(shown[:, row], data["pixels"][row, first + 1])
    assert torch.equal(shown[:, other], data["next", "pixels"][other, first])
