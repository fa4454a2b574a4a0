"""Logged data, read back with the libraries that display it."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import numpy as np
import pytest
import torch
from tensordict import MemoryMappedTensor, TensorDict

from steppe.errors import FileExists, LibraryMissing, NotSupported, SpecError
from steppe.loggers import CSVLogger, MLFlowLogger, TensorboardLogger, VideoFileLogger, WandbLogger
from steppe_record import generate_exp_name, get_logger
from tests.limits import CHILD
from tests.transforms.record.decoding import decoded, error

pytestmark = pytest.mark.matrix

VIDEO = torch.zeros(1, 6, 3, 32, 48, dtype=torch.uint8)
VIDEO[:, :, 0, 8:24, 8:24] = 200


def frame_error(frame: torch.Tensor) -> float:
    return error(frame, VIDEO[0, 0].movedim(0, -1))


def test_csv_writes_scalars_settings_and_histograms_as_text(tmp_path):
    logger = CSVLogger("run", tmp_path)
    logger.log_scalar("train/loss", 0.5)
    logger.log_scalar("train/loss", torch.tensor(0.25))
    logger.log_scalar("train/loss", 1, step=7)
    logger.log_hparams({"lr": 0.1, "env": "Pendulum"})
    logger.log_histogram("weights", torch.tensor([0.0, 1.0, 1.0, 2.0]), bins=2, step=3)
    logged = logger.log_metrics(TensorDict({"a": {"b": torch.ones(())}, "c": torch.zeros(2)}).select("a"), step=4)

    folder = tmp_path / "run"
    assert (folder / "scalars/train/loss.csv").read_text() == "0,0.5\n1,0.25\n7,1.0\n"
    assert (folder / "texts/hparams0.txt").read_text() == "env: Pendulum\nlr: 0.1"
    assert (folder / "histograms/weights_3.csv").read_text() == "0.0,1.0,1\n1.0,2.0,3\n"
    assert (logged, (folder / "scalars/a/b.csv").read_text()) == ({"a/b": 1.0}, "4,1.0\n")


@pytest.mark.parametrize("video_format", ["mp4", "gif", "pt", "memmap"])
def test_csv_writes_videos_in_each_of_its_formats(tmp_path, video_format):
    logger = CSVLogger("run", tmp_path, video_format, video_fps=20)
    logger.log_video("rollout", VIDEO, step=3)

    file = tmp_path / f"run/videos/rollout_3.{video_format}"
    if video_format in ("mp4", "gif"):
        video = decoded(file)
        assert (len(video.frames), video.fps) == (6, 20)
        assert frame_error(video.frames[0]) < 0.03
    elif video_format == "pt":
        assert torch.equal(torch.load(file), VIDEO)
    else:
        read = MemoryMappedTensor.from_filename(file, dtype=torch.uint8, shape=VIDEO.shape)
        assert torch.equal(read, VIDEO)
    with pytest.raises(FileExists, match="overwrite=True"):
        logger.log_video("rollout", VIDEO, step=3)
    CSVLogger("run", tmp_path, video_format, overwrite=True).log_video("rollout", VIDEO, step=3)


def test_csv_has_no_other_format(tmp_path):
    with pytest.raises(SpecError, match="pt, memmap, mp4, gif, found 'avi'"):
        CSVLogger("run", tmp_path, "avi")


def test_tensorboard_shows_what_was_logged(tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    with TensorboardLogger("run", tmp_path) as logger:
        logger.log_scalar("loss", 0.5, step=3)
        logger.log_video("rollout", VIDEO, step=4, fps=10)
        logger.log_histogram("weights", torch.arange(10.0), step=5)
        logger.log_hparams({"lr": 0.1, "layers": [2, 3]})

    events = EventAccumulator(logger.log_dir).Reload()
    assert [(one.step, one.value) for one in events.Scalars("loss")] == [(3, 0.5)]
    assert [(one.step, one.histogram_value.num) for one in events.Histograms("weights")] == [(5, 10)]
    (picture,) = events.Images("rollout")
    (tmp_path / "it.gif").write_bytes(picture.encoded_image_string)
    assert (picture.step, picture.width, picture.height) == (4, 48, 32)
    video = decoded(tmp_path / "it.gif")
    assert (len(video.frames), video.fps) == (6, 10)


@pytest.mark.programs
def test_mlflow_keeps_a_run_in_a_folder(tmp_path, monkeypatch):
    monkeypatch.delenv("MLFLOW_ALLOW_FILE_STORE", raising=False)
    with MLFlowLogger("experiment", tmp_path / "runs", tags={"a": "b"}) as logger:
        logger.log_scalar("loss", 0.5, step=3)
        logger.log_metrics({"reward": torch.tensor(2.0)}, step=4)
        logger.log_hparams({"lr": 0.1})
        logger.log_video("eval/rollout", VIDEO, step=4, fps=12)
        logger.log_histogram("weights", np.arange(4.0), bins=2, step=5)
    MLFlowLogger("experiment", tmp_path / "runs").close()

    assert "MLFLOW_ALLOW_FILE_STORE" not in os.environ
    run = tmp_path / "runs" / logger.id / logger.experiment.info.run_id
    assert (run / "metrics/loss").read_text().split()[1:] == ["0.5", "3"]
    assert (run / "metrics/reward").read_text().split()[1:] == ["2.0", "4"]
    assert (run / "params/lr").read_text() == "0.1"
    video = decoded(run / "artifacts/videos/eval/rollout_4.mp4")
    assert (len(video.frames), video.fps) == (6, 12)
    assert json.loads((run / "artifacts/histograms/weights_5.json").read_text())["counts"] == [2, 2]


@pytest.mark.programs
def test_wandb_keeps_a_run_offline(tmp_path):
    code = """
import torch
from steppe.loggers import WandbLogger

video = torch.full((1, 6, 3, 32, 48), 90, dtype=torch.uint8)
with WandbLogger("run", offline=True, log_dir="here", project="p", log_env_packages=False) as logger:
    logger.log_scalar("train/loss", 0.5, step=9)
    logger.log_scalar("train/loss", 0.25)
    logger.log_video("rollout", video, step=3, fps=15)
    logger.log_histogram("weights", torch.arange(9.0), step=4)
    logger.log_hparams({"lr": 0.1})
    print({key: logger.experiment.summary[key] for key in ("train/loss", "train/step")}, dict(logger.experiment.config))
"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "WANDB_SILENT": "true"},
        capture_output=True,
        text=True,
        timeout=CHILD,
    )

    assert done.returncode == 0, done.stderr
    assert "{'train/loss': 0.25, 'train/step': 10} {'lr': 0.1}" in done.stdout
    (file,) = tmp_path.glob("here/wandb/offline-run-*/files/media/videos/rollout_*.mp4")
    video = decoded(file)
    assert (len(video.frames), video.fps) == (6, 15)


def test_a_video_file_gets_its_name_when_it_is_complete(tmp_path):
    with VideoFileLogger(tmp_path / "all.mp4", 10) as logger:
        logger.log_video("a", VIDEO, step=0)
        logger.log_video("b", VIDEO[0])
        assert not (tmp_path / "all.mp4").exists()
        with pytest.raises(NotSupported, match="only videos"):
            logger.log_scalar("loss", 1.0)
    assert logger.frames == len(decoded(tmp_path / "all.mp4").frames) == 12


@pytest.mark.parametrize(
    ("logger", "module", "extra"),
    [
        (lambda: TensorboardLogger("run"), "tensorboard", "tensorboard"),
        (lambda: WandbLogger("run", offline=True), "wandb", "wandb"),
        (lambda: MLFlowLogger("run", "folder"), "mlflow", "mlflow"),
    ],
)
def test_a_logger_without_its_library_says_what_to_install(tmp_path, monkeypatch, logger, module, extra):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(LibraryMissing, match=rf"pip install 'steppe-record\[{extra}\]'"):
        logger()
    assert list(tmp_path.iterdir()) == []


def test_finding_loggers_loads_neither_torch_nor_their_libraries():
    code = """
import sys
import steppe.loggers
for name in dir(steppe.loggers):
    getattr(steppe.loggers, name)
print({"torch", "av", "tensorboard", "wandb", "mlflow"} & set(sys.modules))
"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        timeout=CHILD,
    )
    assert done.stdout == "set()\n", done.stderr


def test_get_logger_makes_a_logger_of_a_kind(tmp_path):
    assert type(get_logger("csv", str(tmp_path), "run")).__name__ == "CSVLogger"
    assert get_logger("", "folder", "run") is None
    assert generate_exp_name("ppo", "cart").startswith("ppo_cart_")
    with pytest.raises(SpecError, match=r"knows 'csv', .* found 'paper'"):
        get_logger("paper", "folder", "run")
