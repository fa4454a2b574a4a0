"""VideoRecorder: recorded frames, and errors if there are none."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch
from tensordict import TensorDict

from steppe import ParallelEnv, SerialEnv, TransformedEnv, make_env
from steppe.errors import SpecError
from steppe.specs import Bounded, Unbounded
from steppe.transforms import PixelRenderTransform, StepCounter, VideoRecorder
from steppe_testing import ArrayDataEnv, DataEnv


class Kept:
    """A logger that has only log_video."""

    def __init__(self):
        self.videos = []

    def log_video(self, name, video, step=None, **kwargs):
        self.videos.append((name, video, step, kwargs))


def pixels(*shape: int, dtype: torch.dtype = torch.uint8) -> Bounded:
    return Bounded(0, 255, shape, dtype=dtype)


def recorded(base: type, recorder: VideoRecorder, spec: Bounded | None = None, **kwargs) -> TransformedEnv:
    return TransformedEnv(base({"pixels": spec or pixels(6, 8, 3)}, **kwargs), recorder)


@pytest.mark.parametrize("base", [DataEnv, ArrayDataEnv])
def test_frames_follow_resets_and_steps_in_order(base):
    logger = Kept()
    recorder = VideoRecorder(logger, "run", skip=1, fps=12, quality="best")
    env = recorded(base, recorder)
    data = env.rollout(8, break_when_any_done=False)  # episodes of five steps
    recorder.dump()

    ((name, video, step, kwargs),) = logger.videos
    frames = [data["pixels"][0], *data["next", "pixels"][:5], data["pixels"][5], *data["next", "pixels"][5:]]
    assert (name, step, kwargs) == ("run", 0, {"fps": 12, "quality": "best"})
    assert torch.equal(video, torch.stack(frames).movedim(-1, 1)[None])


def test_skip_is_2_by_default_for_a_single_environment():
    """skip=n keeps every nth frame; the default for batches is 1."""
    kept = {}
    for skip in (None, 3):
        recorder = VideoRecorder(None, None, skip=skip)
        data = recorded(DataEnv, recorder, max_steps=20).rollout(9)
        every = torch.cat([data["pixels"][:1], data["next", "pixels"]]).movedim(-1, 1)
        kept[skip] = (torch.stack(recorder.obs), every)
    assert torch.equal(kept[None][0], kept[None][1][1::2])
    assert torch.equal(kept[3][0], kept[3][1][2::3])
    batch = TransformedEnv(SerialEnv(2, lambda: DataEnv({"pixels": pixels(6, 8, 3)})), VideoRecorder(None, None))
    assert batch.transform.skip == 1
    assert VideoRecorder(None, None).skip == 1


def test_each_dump_writes_a_numbered_video():
    logger = Kept()
    recorder = VideoRecorder(logger, "run", skip=1)
    env = recorded(DataEnv, recorder)
    recorder.dump()  # nothing to log
    env.rollout(2)
    env.transform.dump(suffix="eval")
    env.rollout(3)
    recorder.dump(step=70)

    assert [(name, len(video[0]), step) for name, video, step, _ in logger.videos] == [
        ("run_eval", 3, 1),
        ("run", 4, 70),
    ]
    assert (recorder.iter, recorder.count, recorder.obs) == (3, 0, [])


def test_frames_are_still_there_when_the_logger_fails():
    class Full:
        def log_video(self, **kwargs):
            raise OSError("no space left")

    recorder = VideoRecorder(Full(), "run", skip=1)
    recorded(DataEnv, recorder).rollout(2)
    with pytest.raises(OSError, match="no space left"):
        recorder.dump()
    assert (len(recorder.obs), recorder.iter) == (3, 0)


def test_each_episode_end_writes_a_video():
    logger = Kept()
    env = recorded(ArrayDataEnv, VideoRecorder(logger, "run", skip=1, dump_on_done=True))
    env.rollout(12, break_when_any_done=False)

    assert [(len(video[0]), step) for _, video, step, _ in logger.videos] == [(6, 0), (6, 1)]


def test_no_more_frames_than_are_wanted():
    recorder = VideoRecorder(None, None, skip=1, max_frames=3)
    recorded(DataEnv, recorder).rollout(5)
    assert len(recorder.obs) == 3


def test_a_square_from_the_middle():
    recorder = VideoRecorder(None, None, skip=1, center_crop=4)
    data = recorded(DataEnv, recorder).rollout(1)
    assert torch.equal(recorder.obs[0], data["pixels"][0, 1:5, 2:6].movedim(-1, 0))


@pytest.mark.parametrize("shape", [(6, 8, 3), (3, 6, 8), (6, 8), (6, 8, 1), (1, 6, 8)])
def test_colours_come_first_or_last_or_not_at_all(shape):
    recorder = VideoRecorder(None, None, skip=1)
    image = recorded(DataEnv, recorder, pixels(*shape)).rollout(1)["pixels"][0]
    if image.ndim == 3:
        image = image.movedim(-1, 0) if shape[-1] in (1, 3) else image
    assert torch.equal(recorder.obs[0], image.expand(3, 6, 8))


def test_grey_frames_of_a_batch_are_tiled():
    """Grey frames of three environments are no picture with three colours."""
    recorder = VideoRecorder(None, None)
    env = TransformedEnv(SerialEnv(3, lambda: DataEnv({"pixels": pixels(6, 8)})), recorder)
    data = env.rollout(1)
    assert recorder.obs[0].shape == (3, 12, 16)
    for row, (top, left) in enumerate([(0, 0), (0, 8), (6, 0)]):
        assert torch.equal(recorder.obs[0][0, top : top + 6, left : left + 8], data["pixels"][row, 0])


def test_without_a_grid_frames_of_a_batch_follow_each_other():
    recorder = VideoRecorder(None, None, make_grid=False)
    data = TransformedEnv(SerialEnv(2, lambda: DataEnv({"pixels": pixels(6, 8, 3)})), recorder).rollout(1)
    assert torch.equal(torch.stack(recorder.obs[:2]), data["pixels"][:, 0].movedim(-1, 1))
    assert len(recorder.obs) == 4


def test_stored_data_is_recorded_frame_by_frame():
    recorder = VideoRecorder(None, None, in_keys=[("next", "image")])
    images = torch.arange(2 * 4 * 6 * 8 * 3).remainder(256).to(torch.uint8).view(2, 4, 6, 8, 3)
    recorder(TensorDict({"next": {"image": images}}, [2, 4]))
    assert torch.equal(torch.stack(recorder.obs), images.flatten(0, 1).movedim(-1, 1))


def test_recorded_frames_do_not_change_with_the_data():
    recorder = VideoRecorder(None, None)
    image = torch.full((6, 8, 3), 7, dtype=torch.uint8)
    recorder(TensorDict({"pixels": image}, []))
    image.fill_(9)
    assert (recorder.obs[0] == 7).all()


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda one: pickle.loads(pickle.dumps(one))])
def test_copies_keep_separate_frames(copied):
    recorder = VideoRecorder(None, None)
    recorder(TensorDict({"pixels": torch.zeros(6, 8, 3, dtype=torch.uint8)}, []))
    other = copied(recorder)
    other.dump()
    assert (len(recorder.obs), len(other.obs)) == (1, 0)


@pytest.mark.parametrize("batch", [SerialEnv, ParallelEnv])
def test_recorders_inside_a_batch_write_videos_when_it_closes(tmp_path, batch):
    from steppe.loggers import CSVLogger

    def make(name):
        return lambda: recorded(ArrayDataEnv, VideoRecorder(CSVLogger(name, tmp_path), "it", skip=1))

    env = batch(2, [make("a"), make("b")])
    data = env.rollout(3)
    env.close()
    for row, name in enumerate("ab"):
        video = torch.load(tmp_path / name / "videos/it_0.pt")
        assert torch.equal(video[0, -1], data["next", "pixels"][row, -1].movedim(-1, 0))


def test_a_clients_logger_is_used():
    class Service:
        def client(self):
            return logger

    logger = Kept()
    assert VideoRecorder(Service(), "it").logger is logger


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        (pixels(6, 8, 4), r"must be images: .* Found the shape \[6, 8, 4\]"),
        (
            Unbounded((6, 8, 3)),
            r"must be of dtype uint8, .* Found torch\.float32: put the recorder before .*ToTensorImage",
        ),
        (Bounded(0, 1, (6, 8, 3), dtype=torch.bool), r"must be of dtype uint8"),
    ],
)
def test_a_recorder_refuses_entries_that_are_no_images(spec, text):
    with pytest.raises(SpecError, match=text):
        _ = recorded(DataEnv, VideoRecorder(None, None), spec).observation_spec


def test_missing_pixels_name_the_arguments_for_rendering():
    with pytest.raises(SpecError) as caught:
        TransformedEnv(make_env("gym:CartPole-v1"), VideoRecorder(None, None)).rollout(1)
    for part in ("'pixels' are missing", "from_pixels=True", "render_mode='rgb_array'", "It has ['observation']"):
        assert part.replace("It has", "The environment has") in str(caught.value)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"skip": 0}, "positive integer as skip, found 0"),
        ({"max_frames": -1}, "positive integer as max_frames, found -1"),
        ({"center_crop": 2.5}, r"positive integer as center_crop, found 2\.5"),
        ({"in_keys": ["a", "b"]}, "one entry, found in_keys="),
        ({"logger": 3, "tag": "it"}, r"A logger has log_video\(.*\), found 3"),
        ({"logger": Kept()}, "needs a name for its videos"),
    ],
)
def test_arguments_are_checked(arguments, text):
    with pytest.raises(SpecError, match=text):
        VideoRecorder(**{"logger": None, "tag": None, **arguments})


def test_a_crop_that_is_larger_than_the_frames_is_refused():
    with pytest.raises(SpecError, match="are 8x6: center_crop=7 is larger"):
        recorded(DataEnv, VideoRecorder(None, None, center_crop=7)).rollout(1)


def test_nothing_is_recorded_while_rendering_is_switched_off():
    env = TransformedEnv(make_env("gym:CartPole-v1", render_mode="rgb_array"), PixelRenderTransform())
    env.append_transform(VideoRecorder(None, None, skip=1))
    env.append_transform(StepCounter())
    env.transform[0].switch("off")
    assert "pixels" not in env.rollout(2).keys()
    assert env.transform[1].obs == []
    env.transform[0].switch()
    assert env.rollout(2)["pixels"].shape == (2, 400, 600, 3)
    assert len(env.transform[1].obs) == 3
