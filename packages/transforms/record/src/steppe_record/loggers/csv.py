"""CSVLogger: text files in a folder, without any library."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from steppe.errors import SpecError

from ..files import NewFile
from .base import Logger, plain_config

__all__ = ["CSVLogger"]

_FORMATS = ("pt", "memmap", "mp4", "gif")


class CSVLogger(Logger):
    """Write text files and videos below ``log_dir/exp_name``::

        scalars/NAME.csv               a line "step,value" for each call
        histograms/NAME_STEP.csv       a line "from,to,count" for each bin
        videos/NAME_STEP.mp4           or .gif, .pt, .memmap
        texts/hparams0.txt             a line "name: value" for each setting

    Scalars are appended to existing files. Other existing files are replaced only if ``overwrite`` is True.

    >>> from steppe_record import CSVLogger
    >>> logger = CSVLogger("cartpole", log_dir="logs")
    >>> logger.log_scalar("return", 21.0, step=0)
    >>> logger.log_metrics({"loss": {"actor": 0.5, "critic": 1.5}}, step=0)
    {'loss/actor': 0.5, 'loss/critic': 1.5}
    >>> print(open("logs/cartpole/scalars/return.csv").read())
    0,21.0

    Args:
        exp_name: name of the experiment and of its folder.
        log_dir: parent of that folder. Default: ``csv_logs``.
        video_format: ``"pt"`` for the tensor with ``torch.save``, ``"memmap"`` for its bytes, ``"mp4"`` or ``"gif"``.
        video_fps: default frames per second of an mp4 or gif.
        overwrite: replace videos and histograms of the same name and step.

    Raises:
        SpecError: ``video_format`` is unknown.
    """

    def __init__(
        self,
        exp_name: str,
        log_dir: str | os.PathLike[str] | None = None,
        video_format: str = "pt",
        video_fps: float = 30,
        *,
        overwrite: bool = False,
    ) -> None:
        if video_format not in _FORMATS:
            raise SpecError(f"CSVLogger has the video formats {', '.join(_FORMATS)}, found {video_format!r}.")
        self.video_format = video_format
        self.video_fps = video_fps
        self.overwrite = overwrite
        self._counts: dict[str, int] = {}
        super().__init__(exp_name, "csv_logs" if log_dir is None else os.fspath(log_dir))

    def _create_experiment(self) -> Path:
        folder = Path(self.log_dir or ".") / self.exp_name
        for name in ("scalars", "videos", "texts"):
            (folder / name).mkdir(parents=True, exist_ok=True)
        return folder

    def log_scalar(self, name: str, value: float, step: int | None = None) -> None:
        file = self.experiment / "scalars" / f"{name}.csv"
        step = self._step(f"scalars/{name}", step)
        file.parent.mkdir(parents=True, exist_ok=True)
        # Opened for each line, so that the line is on disk at once, and the logger can be sent to another process.
        with file.open("a", encoding="utf-8") as lines:
            lines.write(f"{step},{float(value)}\n")

    def log_video(self, name: str, video: Any, step: int | None = None, **kwargs: Any) -> None:
        """Log a video; see :meth:`Logger.log_video`.

        Args:
            name: name of the video.
            video: ``[N, T, C, H, W]`` or ``[T, C, H, W]`` uint8.
            step: step in the name of the file. None: the step after the last one.
            **kwargs: ``fps``, ``video_codec`` and ``options`` of an mp4 or gif, see :class:`VideoWriter`.

        Raises:
            FileExists: a video of this name and step exists, and ``overwrite`` is False.
        """
        from ..video import hwc_frames, write_video

        file = self.experiment / "videos" / f"{name}_{self._step(f'videos/{name}', step)}.{self.video_format}"
        if self.video_format in ("mp4", "gif"):
            write_video(file, video, **{"fps": self.video_fps, "overwrite": self.overwrite, **kwargs})
            return
        import torch
        from tensordict import MemoryMappedTensor

        hwc_frames(video)
        with NewFile(file, overwrite=self.overwrite) as new:
            if self.video_format == "pt":
                torch.save(video, new.path)
            else:
                MemoryMappedTensor.from_tensor(video, filename=new.path)

    def log_hparams(self, cfg: Any) -> None:
        lines = [f"{name}: {value}" for name, value in sorted(plain_config(cfg).items())]
        file = self.experiment / "texts" / f"hparams{self._step('texts/hparams', None)}.txt"
        file.write_text("\n".join(lines), encoding="utf-8")

    def log_histogram(self, name: str, data: Any, **kwargs: Any) -> None:
        """Log the distribution of numbers; see :meth:`Logger.log_histogram`.

        ``bins`` is the argument of :func:`numpy.histogram`.
        """
        import numpy as np

        step = self._step(f"histograms/{name}", kwargs.pop("step", None))
        bins = kwargs.pop("bins", None)
        if kwargs:
            raise TypeError(f"log_histogram takes step and bins, found {sorted(kwargs)}.")
        values = data.detach().cpu().numpy() if hasattr(data, "detach") else np.asarray(data)
        counts, edges = np.histogram(values, bins=10 if bins is None else bins)
        lines = [f"{low},{high},{count}\n" for low, high, count in zip(edges[:-1], edges[1:], counts, strict=True)]
        with NewFile(self.experiment / "histograms" / f"{name}_{step}.csv", overwrite=self.overwrite) as new:
            new.path.write_text("".join(lines), encoding="utf-8")

    def print_log_dir(self) -> None:
        """Print the files of the experiment."""
        for file in sorted(self.experiment.rglob("*")):
            if file.is_file():
                print(file.relative_to(self.experiment.parent))

    def _step(self, what: str, step: int | None) -> int:
        if step is None:
            step = self._counts.get(what, 0)
        self._counts[what] = step + 1
        return step
