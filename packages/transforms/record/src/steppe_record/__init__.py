"""Recorders of videos and data, and loggers, for steppe."""

from __future__ import annotations

from typing import TYPE_CHECKING

from steppe.imports import lazy_exports

if TYPE_CHECKING:
    from .loggers.base import Logger as Logger
    from .loggers.csv import CSVLogger as CSVLogger
    from .loggers.lookup import generate_exp_name as generate_exp_name
    from .loggers.lookup import get_logger as get_logger
    from .loggers.mlflow import MLFlowLogger as MLFlowLogger
    from .loggers.tensorboard import TensorboardLogger as TensorboardLogger
    from .loggers.video_file import VideoFileLogger as VideoFileLogger
    from .loggers.wandb import WandbLogger as WandbLogger
    from .pixel_render import PixelRenderTransform as PixelRenderTransform
    from .tensordict_recorder import TensorDictRecorder as TensorDictRecorder
    from .video.writer import VideoWriter as VideoWriter
    from .video.writer import write_video as write_video
    from .video_recorder import VideoRecorder as VideoRecorder
else:
    __getattr__, __dir__, __all__ = lazy_exports(
        __name__,
        {
            "loggers.base": ["Logger"],
            "loggers.csv": ["CSVLogger"],
            "loggers.lookup": ["generate_exp_name", "get_logger"],
            "loggers.mlflow": ["MLFlowLogger"],
            "loggers.tensorboard": ["TensorboardLogger"],
            "loggers.video_file": ["VideoFileLogger"],
            "loggers.wandb": ["WandbLogger"],
            "pixel_render": ["PixelRenderTransform"],
            "tensordict_recorder": ["TensorDictRecorder"],
            "video.writer": ["VideoWriter", "write_video"],
            "video_recorder": ["VideoRecorder"],
        },
    )
