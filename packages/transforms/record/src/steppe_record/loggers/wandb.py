"""WandbLogger: runs of Weights & Biases, offline too."""

from __future__ import annotations

import os
import platform
from importlib.metadata import distributions
from typing import Any

from steppe.errors import SpecError

from .base import Logger, import_library, plain, plain_config

__all__ = ["WandbLogger"]


class WandbLogger(Logger):
    """Logs to a run of Weights & Biases.

    Args:
        exp_name: name of the run.
        offline: keep the run in ``save_dir``; ``wandb sync`` uploads it later.
        save_dir: where the run's files are.
        id: of the run, to resume it.
        project: name of the project.
        base_url: the server.
        log_dir: another name of ``save_dir``.
        video_fps: frames per second of a video that does not say its own.
        log_env_packages: put the versions of Python and of what is installed into the run's config, under ``"env"``.
        **kwargs: for ``wandb.init``.

    Raises:
        LibraryMissing: wandb is not installed.
        SpecError: both ``save_dir`` and ``log_dir`` were given.
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
            raise SpecError("WandbLogger: save_dir and log_dir are names of one folder, found both. Give one.")
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
            given = self._init.get("settings")
            settings = wandb.Settings(**given) if isinstance(given, dict) else given or wandb.Settings()
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
            name: of it. The steps of ``train/loss`` are logged as ``train/step``, and are its axis.
            value: the number.
            step: when; None for one after the last.
            commit: False to add it to the row that the next call completes.
            override_global_step: give ``step`` to wandb as it is, whose own steps may not go back. Every method that
                logs takes this.
        """
        self._log({name: value}, step, commit=commit, override_global_step=override_global_step)

    def log_video(self, name: str, video: Any, step: int | None = None, **kwargs: Any) -> None:
        """Log a video; see :meth:`Logger.log_video`. ``format`` is ``"mp4"`` (the default) or ``"gif"``."""
        import tempfile
        from pathlib import Path

        wandb = import_library("wandb", logger="WandbLogger", extra="wandb")
        from ..video import write_video

        kind, override = kwargs.pop("format", "mp4"), kwargs.pop("override_global_step", False)
        # wandb takes the file over while it is logged.
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / f"video.{kind}"
            write_video(file, video, **{"fps": self.video_fps, **kwargs})
            self._log({name: wandb.Video(str(file), format=kind)}, step, override_global_step=override)

    def log_hparams(self, cfg: Any) -> None:
        self.experiment.config.update(plain_config(cfg), allow_val_change=True)

    def log_histogram(self, name: str, data: Any, **kwargs: Any) -> None:
        """Log how numbers are distributed; see :meth:`Logger.log_histogram`. ``bins`` is how many."""
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
        found = plain(metrics, keys_sep)
        self._log(found, step, override_global_step=override_global_step)
        return found

    def close(self) -> None:
        self.experiment.finish()

    def _log(
        self, values: dict[str, Any], step: int | None, *, override_global_step: bool = False, **kwargs: Any
    ) -> None:
        if override_global_step:
            self.experiment.log(values, step=step, **kwargs)
            return
        # wandb's own step may not go back: each group of names has an axis of its own instead.
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
    found = {one.metadata["Name"]: one.version for one in distributions() if one.metadata["Name"]}
    return {
        "python": {"version": platform.python_version(), "platform": platform.platform()},
        "packages": dict(sorted(found.items())),
    }
