"""Logger: what every logger can do."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from importlib import import_module
from typing import Any

from steppe.errors import LibraryMissing

__all__ = ["Logger", "import_library", "plain", "plain_config"]


class Logger(ABC):
    """A base of loggers. What recorders and training loops need of one is its methods alone, not this class.

    Args:
        exp_name: name of the experiment.
        log_dir: the folder that it writes to.

    Attributes:
        exp_name: as it was given.
        log_dir: the folder, as text; None where there is none.
        experiment: what the library made for it: a writer, a run.
    """

    def __init__(self, exp_name: str, log_dir: str | None) -> None:
        self.exp_name = exp_name
        self.log_dir = log_dir
        self.experiment = self._create_experiment()

    @abstractmethod
    def _create_experiment(self) -> Any:
        """Make what the library logs to."""

    @abstractmethod
    def log_scalar(self, name: str, value: float, step: int | None = None) -> None:
        """Log a number.

        Args:
            name: of it; ``/`` makes groups.
            value: a number, or a tensor of one element.
            step: when; None for one after the last.
        """

    @abstractmethod
    def log_video(self, name: str, video: Any, step: int | None = None, **kwargs: Any) -> None:
        """Log a video.

        Args:
            name: of it.
            video: ``[N, T, C, H, W]`` or ``[T, C, H, W]`` uint8, C being 1 or 3; N videos are shown one after another.
            step: when.
            **kwargs: ``fps``, and what the logger says.
        """

    @abstractmethod
    def log_hparams(self, cfg: Any) -> None:
        """Log the settings of the experiment, a mapping."""

    @abstractmethod
    def log_histogram(self, name: str, data: Any, **kwargs: Any) -> None:
        """Log how numbers are distributed.

        Args:
            name: of them.
            data: numbers, of any shape.
            **kwargs: ``step`` and ``bins``, and what the logger says.
        """

    def log_metrics(self, metrics: Any, step: int | None = None, *, keys_sep: str = "/") -> dict[str, Any]:
        """Log several numbers at once.

        Args:
            metrics: a mapping, or a TensorDict, whose nested names are joined by ``keys_sep``.
            step: when.
            keys_sep: see above.

        Returns:
            What was logged, as Python numbers and lists by name.
        """
        found = plain(metrics, keys_sep)
        for name, value in found.items():
            self.log_scalar(name, value, step=step)
        return found

    def close(self) -> None:  # noqa: B027, most have nothing left
        """Write what is left. Calling it again does nothing."""

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"{type(self).__name__}(exp_name={self.exp_name!r}, log_dir={self.log_dir!r})"


def import_library(module: str, *, logger: str, extra: str) -> Any:
    """Import what a logger writes with.

    Raises:
        LibraryMissing: it is not installed; the text says how to.
    """
    try:
        return import_module(module)
    except ImportError as error:
        raise LibraryMissing(
            f"{logger} needs {extra}, which cannot be imported ({error}): pip install 'steppe-record[{extra}]'."
        ) from error


def plain(metrics: Any, keys_sep: str) -> dict[str, Any]:
    """Metrics by flat name, tensors as numbers or lists."""
    found: dict[str, Any] = {}
    for name, value in metrics.items():
        if isinstance(value, Mapping) or hasattr(value, "batch_size"):
            inner = plain(value, keys_sep)
            found.update({f"{name}{keys_sep}{key}": one for key, one in inner.items()})
        elif hasattr(value, "detach"):
            value = value.detach().cpu()
            found[name] = value.item() if value.numel() == 1 else value.tolist()
        else:
            found[name] = value
    return found


def plain_config(cfg: Any) -> dict[str, Any]:
    """Settings as a dict: of a mapping, or of an OmegaConf, with its interpolations resolved."""
    if type(cfg).__module__.partition(".")[0] == "omegaconf":
        cfg = import_module("omegaconf").OmegaConf.to_container(cfg, resolve=True)
    return dict(cfg)
