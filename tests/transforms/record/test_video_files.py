"""Videos as files: complete or not there, of sizes, rates and values that there are."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import numpy as np
import pytest
import torch

from steppe.errors import ClosedError, FileExists, SpecError, StateError
from steppe_record import VideoWriter, write_video
from tests.forked import python
from tests.limits import CHILD
from tests.transforms.record.decoding import decoded, error

pytestmark = pytest.mark.matrix


def moving(n: int = 12, height: int = 48, width: int = 64) -> torch.Tensor:
    """A video ``[n, 3, height, width]`` of a bar that moves."""
    video = torch.full((n, 3, height, width), 40, dtype=torch.uint8)
    for i in range(n):
        video[i, 0, :, 2 * i : 2 * i + 16] = 220
    return video


@pytest.mark.parametrize(("name", "fps"), [("a.mp4", 24), ("a.mp4", 12.5), ("a.gif", 25)])
def test_frames_size_and_rate_are_those_that_were_given(tmp_path, name, fps):
    write_video(tmp_path / "new" / name, moving(), fps=fps)

    video = decoded(tmp_path / "new" / name)
    assert video.fps == fps
    assert video.frames.shape == (12, 48, 64, 3)
    for frame, expected in zip(video.frames, moving().movedim(1, -1), strict=True):
        assert error(frame, expected) < 0.03


def test_frames_that_do_not_change_are_kept(tmp_path):
    write_video(tmp_path / "a.gif", moving(1).expand(7, 3, 48, 64), fps=10)

    assert len(decoded(tmp_path / "a.gif").frames) == 7


def test_videos_are_joined_and_grey_ones_have_one_channel(tmp_path):
    """The videos of one tensor follow each other in the file."""
    write_video(tmp_path / "a.mp4", moving()[:, :1].unflatten(0, (2, 6)))

    frames = decoded(tmp_path / "a.mp4").frames
    assert len(frames) == 12
    assert error(frames[..., :1], frames[..., 1:2]) < 0.01


def test_an_existing_file_is_replaced_only_with_overwrite(tmp_path):
    file = tmp_path / "a.mp4"
    file.write_text("mine")
    with pytest.raises(FileExists, match=r"a\.mp4' exists\. .* overwrite=True"):
        write_video(file, moving())
    assert file.read_text() == "mine"
    write_video(file, moving(), overwrite=True)
    assert len(decoded(file).frames) == 12


def test_a_file_created_meanwhile_is_kept(tmp_path):
    writer = VideoWriter(tmp_path / "a.mp4")
    writer.write(moving()[0].movedim(0, -1))
    (tmp_path / "a.mp4").write_text("theirs")
    with pytest.raises(FileExists, match=r"a\.mp4' exists"):
        writer.close()
    assert [path.name for path in tmp_path.iterdir()] == ["a.mp4"]
    assert (tmp_path / "a.mp4").read_text() == "theirs"


def test_a_failed_write_leaves_no_file(tmp_path):
    def half(n: int) -> None:
        with VideoWriter(tmp_path / "a.mp4") as writer:
            writer.write(moving()[0].movedim(0, -1))
            raise KeyError(n)

    with pytest.raises(KeyError):
        half(1)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="the system has no such signal")
def test_a_killed_process_leaves_no_file_of_that_name(tmp_path):
    code = """
import os, signal, sys
import numpy as np
from steppe_record import VideoWriter
writer = VideoWriter("a.mp4", overwrite=True)
for i in range(200):
    writer.write(np.full((48, 64, 3), i, np.uint8))
os.kill(os.getpid(), signal.SIGKILL)
"""
    done = subprocess.run(
        [*python(), "-c", code],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        timeout=CHILD,
    )

    assert done.returncode == -signal.SIGKILL
    assert not (tmp_path / "a.mp4").exists()
    assert all(path.name.startswith(".a-") for path in tmp_path.iterdir())
    write_video(tmp_path / "a.mp4", moving())


@pytest.mark.parametrize(("height", "width"), [(47, 64), (48, 63)])
def test_h264_needs_even_sizes_and_a_gif_does_not(tmp_path, height, width):
    video = moving(3, height, width)
    with pytest.raises(SpecError, match=rf"even width and height, found {width}x{height}\. Crop .* \.gif"):
        write_video(tmp_path / "a.mp4", video)
    assert list(tmp_path.iterdir()) == []
    write_video(tmp_path / "a.gif", video)
    write_video(tmp_path / "a.mp4", video, options={"pixel_format": "yuv444p"})
    for name in ("a.gif", "a.mp4"):
        assert decoded(tmp_path / name).frames.shape == (3, height, width, 3)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"file": "a.avi"}, r"ends in \.mp4 or \.gif, found 'a\.avi'"),
        ({"file": "a"}, r"ends in \.mp4 or \.gif, found 'a'"),
        ({"fps": 0}, "positive number, found 0"),
        ({"fps": "fast"}, "positive number, found 'fast'"),
        ({"file": "a.gif", "fps": 60}, "at most 50 frames per second, found fps=60"),
        ({"video": torch.zeros(2, 48, 64, 3, dtype=torch.uint8)}, r"\[T, C, H, W\] .* Found \[2, 48, 64, 3\]"),
        ({"video": torch.zeros(2, 3, 48, 64)}, r"uint8, from 0 to 255\. Found torch\.float32"),
        ({"video": torch.full((2, 3, 48, 64), 300)}, r"from 0 to 255\. Found torch\.int64 from 300 to 300"),
        ({"video_codec": "none"}, "no codec 'none'"),
    ],
)
def test_write_video_refuses_invalid_arguments(tmp_path, monkeypatch, arguments, text):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SpecError, match=text):
        write_video(**{"file": "a.mp4", "video": moving(), **arguments})
    assert list(tmp_path.iterdir()) == []


def test_integers_from_0_to_255_are_pixels_whatever_their_dtype(tmp_path):
    write_video(tmp_path / "a.gif", moving().long(), fps=25)

    assert error(decoded(tmp_path / "a.gif").frames[3], moving()[3].movedim(0, -1)) < 0.01


def test_a_writer_says_what_its_frames_must_be(tmp_path):
    writer = VideoWriter(tmp_path / "a.mp4")
    writer.write(np.zeros((48, 64, 3), np.uint8))
    with pytest.raises(SpecError, match=r"one size\. Found 32x48 after 64x48"):
        writer.write(np.zeros((48, 32, 3), np.uint8))
    with pytest.raises(SpecError, match=r"\[H, W, 3\] of uint8. Found \[48, 64, 3\] of float64"):
        writer.write(np.zeros((48, 64, 3)))
    writer.close()
    writer.close()
    with pytest.raises(ClosedError):
        writer.write(np.zeros((48, 64, 3), np.uint8))
    assert len(decoded(tmp_path / "a.mp4").frames) == 1
    with pytest.raises(StateError, match="no frame was added"):
        VideoWriter(tmp_path / "b.mp4").close()
    assert [path.name for path in tmp_path.iterdir()] == ["a.mp4"]
