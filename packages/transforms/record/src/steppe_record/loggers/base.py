"""Logger: the base class of loggers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from importlib import import_module
from typing import Any

from steppe.errors import LibraryMissing

__all__ = ["Logger", "import_library", "plain", "plain_config"]


class Logger(ABC):
    """Base class of loggers.

    Recorders and training loops accept any object with these methods.

    >>> from steppe_record import Logger
    >>> class Printer(Logger):
    ...     def _create_experiment(self):
    ...         return None
    ...     def log_scalar(self, name, value, step=None):
    ...         print(f"step {step}: {name} is {value:.1f}")
    ...     def log_video(self, name, video, step=None, **kwargs):
    ...         print(f"step {step}: {name} has {video.shape[1]} frames")
    ...     def log_hparams(self, cfg):
    ...         print(cfg)
    ...     def log_histogram(self, name, data, **kwargs):
    ...         print(name, len(data))
    >>> Printer("cartpole", None).log_scalar("return", 21.0, step=3)
    step 3: return is 21.0

    Args:
        exp_name: name of the experiment.
        log_dir: folder of its files.

    Attributes:
        exp_name: the argument.
        log_dir: the folder as a string; None without one.
        experiment: object of the library: a writer, a run.
    """

    def __init__(self, exp_name: str, log_dir: str | None) -> None:
        self.exp_name = exp_name
        self.log_dir = log_dir
        self.experiment = self._create_experiment()

    @abstractmethod
    def _create_experiment(self) -> Any:
        """Make the writer or run of the library that receives the data."""

    @abstractmethod
    def log_scalar(self, name: str, value: float, step: int | None = None) -> None:
        """Log a number.

        Args:
            name: name of the number; ``/`` makes groups.
            value: a number, or a tensor of one element.
            step: step of the number. None: the step after the last one.
        """

    @abstractmethod
    def log_video(self, name: str, video: Any, step: int | None = None, **kwargs: Any) -> None:
        """Log a video.

        Args:
            name: name of the video.
            video: ``[N, T, C, H, W]`` or ``[T, C, H, W]`` uint8, with 1 or 3 channels; N videos are played in sequence.
            step: step of the video.
            **kwargs: ``fps``, and options of the logger.
        """

    @abstractmethod
    def log_hparams(self, cfg: Any) -> None:
        """Log the settings of the experiment, a mapping."""

    @abstractmethod
    def log_histogram(self, name: str, data: Any, **kwargs: Any) -> None:
        """Log the distribution of numbers.

        Args:
            name: name of the histogram.
            data: numbers, of any shape.
            **kwargs: ``step`` and ``bins``, and options of the logger.
        """

    def log_metrics(self, metrics: Any, step: int | None = None, *, keys_sep: str = "/") -> dict[str, Any]:
        """Log several numbers at once.

        Args:
            metrics: a mapping or a TensorDict; nested names are joined.
            step: step of the numbers.
            keys_sep: separator of nested names.

        Returns:
            The logged values by name, as Python numbers and lists.
        """
        values = plain(metrics, keys_sep)
        for name, value in values.items():
            self.log_scalar(name, value, step=step)
        return values

    def close(self) -> None:  # noqa: B027, most loggers have nothing to do here
        """Write remaining data. Calling it again does nothing."""

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"{type(self).__name__}(exp_name={self.exp_name!r}, log_dir={self.log_dir!r})"


def import_library(module: str, *, logger: str, extra: str) -> Any:
    """Import the library of a logger.

    Raises:
        LibraryMissing: the library is not installed; the text says how to install it.
    """
    try:
        return import_module(module)
    except ImportError as error:
        raise LibraryMissing(
            f"{logger} needs {extra}, which cannot be imported ({error}): pip install 'steppe-record[{extra}]'."
        ) from error


def plain(metrics: Any, keys_sep: str) -> dict[str, Any]:
    """Return metrics as a flat dict, with tensors as numbers or lists."""
    values: dict[str, Any] = {}
    for name, value in metrics.items():
        if isinstance(value, Mapping) or hasattr(value, "batch_size"):
            inner = plain(value, keys_sep)
            values.update({f"{name}{keys_sep}{key}": number for key, number in inner.items()})
        elif hasattr(value, "detach"):
            value = value.detach().cpu()
            values[name] = value.item() if value.numel() == 1 else value.tolist()
        else:
            values[name] = value
    return values


def plain_config(cfg: Any) -> dict[str, Any]:
    """Return settings as a dict; interpolations of an OmegaConf are resolved."""
    if type(cfg).__module__.partition(".")[0] == "omegaconf":
        cfg = import_module("omegaconf").OmegaConf.to_container(cfg, resolve=True)
    return dict(cfg)
