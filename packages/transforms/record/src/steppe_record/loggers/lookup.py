"""get_logger: make a logger by its type, with the same arguments for all types."""

from __future__ import annotations

import uuid
from datetime import datetime
from typing import Any

from steppe.errors import SpecError

from .base import Logger

__all__ = ["generate_exp_name", "get_logger"]


def get_logger(logger_type: str | None, logger_name: str, experiment_name: str, **kwargs: Any) -> Logger | None:
    """Make a logger by its type.

    >>> from steppe_record import get_logger
    >>> logger = get_logger("csv", "logs", "cartpole")
    >>> type(logger).__name__, logger.log_dir
    ('CSVLogger', 'logs')
    >>> get_logger("", "logs", "cartpole") is None  # no logging
    True

    Args:
        logger_type: ``"csv"`` (with videos as mp4), ``"tensorboard"``, ``"wandb"`` or ``"mlflow"``; ``""`` and None for
            no logger.
        logger_name: folder of the logs (for MLflow, the tracking URI).
        experiment_name: name of the experiment.
        **kwargs: ``wandb_kwargs`` and ``mlflow_kwargs``, dicts of further arguments of these loggers.

    Returns:
        The logger, or None.

    Raises:
        SpecError: ``logger_type`` or an argument is unknown.
    """
    more = {kind: dict(kwargs.pop(f"{kind}_kwargs", None) or {}) for kind in ("wandb", "mlflow")}
    if kwargs:
        raise SpecError(f"get_logger takes wandb_kwargs and mlflow_kwargs, found {sorted(kwargs)}.")
    if not logger_type:
        return None
    if logger_type == "csv":
        from .csv import CSVLogger

        return CSVLogger(experiment_name, logger_name, video_format="mp4")
    if logger_type == "tensorboard":
        from .tensorboard import TensorboardLogger

        return TensorboardLogger(experiment_name, logger_name)
    if logger_type == "wandb":
        from .wandb import WandbLogger

        return WandbLogger(experiment_name, log_dir=logger_name, **more["wandb"])
    if logger_type == "mlflow":
        from .mlflow import MLFlowLogger

        return MLFlowLogger(experiment_name, logger_name, **more["mlflow"])
    raise SpecError(f"get_logger knows 'csv', 'tensorboard', 'wandb' and 'mlflow', found {logger_type!r}.")


def generate_exp_name(model_name: str, experiment_name: str) -> str:
    """Return a unique name for an experiment, which contains the current time.

    >>> from steppe_record import generate_exp_name
    >>> generate_exp_name("ppo", "cartpole")
    'ppo_cartpole_...'
    """
    now = datetime.now().strftime("%y_%m_%d-%H_%M_%S")
    return "_".join((model_name, experiment_name, str(uuid.uuid4())[:8], now))
