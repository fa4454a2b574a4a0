"""TensorboardLogger: event files for TensorBoard."""

from __future__ import annotations

import os
from typing import Any

from .base import Logger, import_library, plain_config

__all__ = ["TensorboardLogger"]


class TensorboardLogger(Logger):
    """Write TensorBoard's event files below ``log_dir/exp_name``.

    Videos are GIFs in these files.

    >>> from pathlib import Path
    >>> from steppe_record import TensorboardLogger
    >>> logger = TensorboardLogger("cartpole")
    >>> logger.log_scalar("return", 21.0, step=0)
    >>> logger.close()
    >>> len(list(Path("tb_logs/cartpole").glob("events*")))
    1

    Args:
        exp_name: name of the experiment and of its folder.
        log_dir: parent of that folder.
        video_fps: default frames per second of videos, at most 50.

    Raises:
        LibraryMissing: TensorBoard is not installed.
    """

    def __init__(self, exp_name: str, log_dir: str | os.PathLike[str] = "tb_logs", *, video_fps: float = 30) -> None:
        self.video_fps = video_fps
        super().__init__(exp_name, os.fspath(log_dir))
        self.log_dir = self.experiment.log_dir

    def _create_experiment(self) -> Any:
        import_library("tensorboard", logger="TensorboardLogger", extra="tensorboard")
        from torch.utils.tensorboard import SummaryWriter

        return SummaryWriter(log_dir=os.path.join(self.log_dir or "", self.exp_name))

    def log_scalar(self, name: str, value: float, step: int | None = None) -> None:
        self.experiment.add_scalar(name, value, global_step=step)

    def log_video(self, name: str, video: Any, step: int | None = None, **kwargs: Any) -> None:
        """Log a video; see :meth:`Logger.log_video`.

        ``**kwargs`` are arguments of :class:`VideoWriter` for a GIF.
        """
        import tempfile
        from pathlib import Path

        from tensorboard.compat.proto.summary_pb2 import Summary

        from ..video import hwc_frames, write_video

        frames = hwc_frames(video)
        # Not SummaryWriter.add_video, which encodes with another library and restricts the shape of frames.
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "video.gif"
            write_video(file, video, **{"fps": self.video_fps, **kwargs})
            content = file.read_bytes()
        image = Summary.Image(height=frames.shape[1], width=frames.shape[2], colorspace=3, encoded_image_string=content)
        summary = Summary(value=[Summary.Value(tag=name, image=image)])
        self.experiment.file_writer.add_summary(summary, step)

    def log_hparams(self, cfg: Any) -> None:
        allowed = (bool, int, float, str)
        values = {
            name: value if isinstance(value, allowed) else str(value) for name, value in plain_config(cfg).items()
        }
        self.experiment.add_hparams(values, metric_dict={})

    def log_histogram(self, name: str, data: Any, **kwargs: Any) -> None:
        """Log the distribution of numbers; see :meth:`Logger.log_histogram`.

        Accepts ``step``, ``bins`` and ``walltime``.
        """
        step, bins = kwargs.pop("step", None), kwargs.pop("bins", None)
        self.experiment.add_histogram(
            name, data, global_step=step, bins="tensorflow" if bins is None else bins, **kwargs
        )

    def close(self) -> None:
        self.experiment.close()
