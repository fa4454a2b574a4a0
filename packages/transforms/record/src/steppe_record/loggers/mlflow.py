"""MLFlowLogger: runs of MLflow, in a folder, a database or on a server."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from .base import Logger, import_library, plain, plain_config

__all__ = ["MLFlowLogger"]

_ALLOW = "MLFLOW_ALLOW_FILE_STORE"


class MLFlowLogger(Logger):
    """Log to a run of MLflow. Videos and histograms are artifacts of the run.

    >>> from pathlib import Path
    >>> from steppe_record import MLFlowLogger
    >>> logger = MLFlowLogger("cartpole", "mlruns")
    >>> logger.log_scalar("return", 21.0, step=0)
    >>> logger.close()
    >>> len(list(Path("mlruns").glob("*/*/metrics/return")))
    1

    Args:
        exp_name: name of the experiment, which is created if it does not exist. Each logger starts a run in it.
        tracking_uri: a folder (``"mlruns"``, ``"file:///..."``), a database (``"sqlite:///mlflow.db"``, for which
            MLflow needs SQLAlchemy) or a server.
        tags: tags of a new experiment.
        artifact_location: location of the artifacts of a new experiment.
        video_fps: default frames per second of videos.

    Raises:
        LibraryMissing: MLflow is not installed.
    """

    def __init__(
        self,
        exp_name: str,
        tracking_uri: str | os.PathLike[str],
        tags: dict[str, Any] | None = None,
        *,
        artifact_location: str | None = None,
        video_fps: float = 30,
    ) -> None:
        uri = os.fspath(tracking_uri)
        self.tracking_uri = uri if ":" in uri else Path(uri).absolute().as_uri()
        self.video_fps = video_fps
        self._experiment_options = {"artifact_location": artifact_location, "tags": tags}
        self._steps: dict[str, int] = {}
        super().__init__(exp_name, self.tracking_uri)

    def _create_experiment(self) -> Any:
        mlflow = import_library("mlflow", logger="MLFlowLogger", extra="mlflow")
        # A separate client, because other code in this process may use another tracking URI.
        with _file_store_allowed(self.tracking_uri):
            self._client = mlflow.MlflowClient(tracking_uri=self.tracking_uri)
            experiment = self._client.get_experiment_by_name(self.exp_name)
            self.id = (
                experiment.experiment_id
                if experiment is not None
                else self._client.create_experiment(self.exp_name, **self._experiment_options)
            )
            run = self._client.create_run(self.id)
        self._run = run.info.run_id
        self._open = True
        return run

    def log_scalar(self, name: str, value: float, step: int | None = None) -> None:
        self._client.log_metric(self._run, name, float(value), step=self._step(name, step))

    def log_video(self, name: str, video: Any, step: int | None = None, **kwargs: Any) -> None:
        """Log a video as the artifact ``videos/NAME_STEP.mp4``.

        See :meth:`Logger.log_video`.
        """
        import tempfile

        from ..video import write_video

        step = self._step(f"videos/{name}", step)
        group, _, last = name.rpartition("/")
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / f"{last}_{step}.mp4"
            write_video(file, video, **{"fps": self.video_fps, **kwargs})
            self._client.log_artifact(self._run, str(file), "/".join(part for part in ("videos", group) if part))

    def log_hparams(self, cfg: Any) -> None:
        for name, value in plain_config(cfg).items():
            self._client.log_param(self._run, name, value)

    def log_histogram(self, name: str, data: Any, **kwargs: Any) -> None:
        """Log the distribution of numbers as the artifact ``histograms/NAME_STEP.json``.

        See :meth:`Logger.log_histogram`.
        """
        import numpy as np

        step, bins = self._step(f"histograms/{name}", kwargs.pop("step", None)), kwargs.pop("bins", None)
        if kwargs:
            raise TypeError(f"log_histogram takes step and bins, found {sorted(kwargs)}.")
        values = data.detach().cpu().numpy() if hasattr(data, "detach") else np.asarray(data)
        counts, edges = np.histogram(values, bins=10 if bins is None else bins)
        content = {"counts": counts.tolist(), "edges": edges.tolist()}
        self._client.log_dict(self._run, content, f"histograms/{name}_{step}.json")

    def log_metrics(self, metrics: Any, step: int | None = None, *, keys_sep: str = "/") -> dict[str, Any]:
        values = plain(metrics, keys_sep)
        for name, value in values.items():
            self.log_scalar(name, value, step)
        return values

    def close(self) -> None:
        if self._open:
            self._open = False
            self._client.set_terminated(self._run)

    def _step(self, what: str, step: int | None) -> int:
        if step is None:
            step = self._steps.get(what, 0)
        self._steps[what] = step + 1
        return step


@contextmanager
def _file_store_allowed(uri: str) -> Iterator[None]:
    """Allow MLflow to log to a folder.

    Newer versions refuse folders unless this variable is set. A tracking URI that names a folder is intended.
    """
    before = os.environ.get(_ALLOW)
    if uri.startswith("file:") and before is None:
        os.environ[_ALLOW] = "true"
    try:
        yield
    finally:
        if before is None:
            os.environ.pop(_ALLOW, None)
