"""WandbLogger: runs of Weights & Biases, online or offline."""

from __future__ import annotations

import os
import platform
from importlib.metadata import distributions
from typing import Any

from steppe.errors import SpecError

from .base import Logger, import_library, plain, plain_config

__all__ = ["WandbLogger"]


class WandbLogger(Logger):
    """Log to a run of Weights & Biases.

    >>> from steppe_record import WandbLogger
    >>> logger = WandbLogger("cartpole", offline=True, save_dir=".")
    >>> logger.log_scalar("return", 21.0, step=0)
    >>> logger.experiment.name
    'cartpole'
    >>> logger.close()

    Args:
        exp_name: name of the run.
        offline: keep the run in ``save_dir``; ``wandb sync`` uploads it later.
        save_dir: folder of the run's files.
        id: id of the run, to resume it.
        project: name of the project.
        base_url: URL of the server.
        log_dir: another name of ``save_dir``.
        video_fps: default frames per second of videos.
        log_env_packages: log the versions of Python and of installed packages as ``"env"`` in the run's config.
        **kwargs: arguments of ``wandb.init``.

    Raises:
        LibraryMissing: wandb is not installed.
        SpecError: both ``save_dir`` and ``log_dir`` are passed.
    """

    def __init__(
        self,
        exp_name: str,
        offline: bool = False,
        save_dir: str | os.PathLike[str] | None = None,
        id: str | None = None,
        project: str | None = None,
        base_url: str | None = None,
        *,
        log_dir: str | os.PathLike[str] | None = None,
        video_fps: float = 32,
        log_env_packages: bool = True,
        **kwargs: Any,
    ) -> None:
        if save_dir and log_dir:
            raise SpecError("WandbLogger: save_dir and log_dir mean the same folder, found both. Pass one of them.")
        folder = save_dir or log_dir
        self.offline = offline
        self.video_fps = video_fps
        self._init = {"name": exp_name, "id": id, "project": project, "resume": "allow", **kwargs}
        if offline:
            self._init["mode"] = "offline"
        if folder:
            folder = os.path.expanduser(os.fspath(folder))
            os.makedirs(folder, exist_ok=True)
            self._init["dir"] = folder
        self._base_url = base_url
        self._defined: set[str] = set()
        self._steps: dict[str, int] = {}
        super().__init__(exp_name, str(folder) if folder else None)
        if log_env_packages:
            self.log_hparams({"env": _versions()})

    def _create_experiment(self) -> Any:
        wandb = import_library("wandb", logger="WandbLogger", extra="wandb")
        if self._base_url is not None:
            passed = self._init.get("settings")
            settings = wandb.Settings(**passed) if isinstance(passed, dict) else passed or wandb.Settings()
            settings.base_url = self._base_url
            self._init["settings"] = settings
            if not self.offline:
                wandb.login(host=self._base_url)
        return wandb.init(**self._init)

    def log_scalar(
        self,
        name: str,
        value: float,
        step: int | None = None,
        commit: bool = True,
        *,
        override_global_step: bool = False,
    ) -> None:
        """Log a number; see :meth:`Logger.log_scalar`.

        Args:
            name: name of the number. The steps of ``train/loss`` are logged as ``train/step``, its axis in plots.
            value: the number.
            step: step of the number. None: the step after the last one.
            commit: False to complete the row of data in a later call.
            override_global_step: pass ``step`` to wandb as its global step, which must not decrease. All logging
                methods accept this.
        """
        self._log({name: value}, step, commit=commit, override_global_step=override_global_step)

    def log_video(self, name: str, video: Any, step: int | None = None, **kwargs: Any) -> None:
        """Log a video; see :meth:`Logger.log_video`.

        ``format`` is ``"mp4"`` (the default) or ``"gif"``.
        """
        import tempfile
        from pathlib import Path

        wandb = import_library("wandb", logger="WandbLogger", extra="wandb")
        from ..video import write_video

        kind, override = kwargs.pop("format", "mp4"), kwargs.pop("override_global_step", False)
        # wandb takes over the file during the call, so the folder can be removed afterwards.
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / f"video.{kind}"
            write_video(file, video, **{"fps": self.video_fps, **kwargs})
            self._log({name: wandb.Video(str(file), format=kind)}, step, override_global_step=override)

    def log_hparams(self, cfg: Any) -> None:
        self.experiment.config.update(plain_config(cfg), allow_val_change=True)

    def log_histogram(self, name: str, data: Any, **kwargs: Any) -> None:
        """Log the distribution of numbers; see :meth:`Logger.log_histogram`.

        ``bins`` is the number of bins.
        """
        wandb = import_library("wandb", logger="WandbLogger", extra="wandb")
        bins = kwargs.pop("bins", None)
        step = kwargs.pop("step", None)
        values = data.detach().cpu().numpy() if hasattr(data, "detach") else data
        self._log({name: wandb.Histogram(values, num_bins=64 if bins is None else bins)}, step, **kwargs)

    def log_str(self, name: str, value: str, step: int | None = None, *, override_global_step: bool = False) -> None:
        """Log a text."""
        self._log({name: value}, step, override_global_step=override_global_step)

    def log_metrics(
        self, metrics: Any, step: int | None = None, *, keys_sep: str = "/", override_global_step: bool = False
    ) -> dict[str, Any]:
        values = plain(metrics, keys_sep)
        self._log(values, step, override_global_step=override_global_step)
        return values

    def close(self) -> None:
        self.experiment.finish()

    def _log(
        self, values: dict[str, Any], step: int | None, *, override_global_step: bool = False, **kwargs: Any
    ) -> None:
        if override_global_step:
            self.experiment.log(values, step=step, **kwargs)
            return
        # wandb's global step must not decrease, so each group of names has its own axis.
        row = dict(values)
        for name in values:
            group, slash, _ = name.rpartition("/")
            axis = f"{group}{slash}step"
            if name == axis:
                continue
            if axis not in self._defined:
                self._defined.add(axis)
                self.experiment.define_metric(axis)
            if name not in self._defined:
                self._defined.add(name)
                self.experiment.define_metric(name, step_metric=axis)
            if axis not in row:
                row[axis] = self._steps.get(axis, -1) + 1 if step is None else step
            self._steps[axis] = max(self._steps.get(axis, -1), int(row[axis]))
        self.experiment.log(row, **kwargs)


def _versions() -> dict[str, Any]:
    packages = {dist.metadata["Name"]: dist.version for dist in distributions() if dist.metadata["Name"]}
    return {
        "python": {"version": platform.python_version(), "platform": platform.platform()},
        "packages": dict(sorted(packages.items())),
    }
