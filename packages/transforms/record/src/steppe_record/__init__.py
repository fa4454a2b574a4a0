"""Recorders of videos and data, and loggers, for steppe."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .loggers.base import Logger
    from .loggers.csv import CSVLogger
    from .loggers.lookup import generate_exp_name, get_logger
    from .loggers.mlflow import MLFlowLogger
    from .loggers.tensorboard import TensorboardLogger
    from .loggers.video_file import VideoFileLogger
    from .loggers.wandb import WandbLogger
    from .pixel_render import PixelRenderTransform
    from .tensordict_recorder import TensorDictRecorder
    from .video.writer import VideoWriter, write_video
    from .video_recorder import VideoRecorder

_MODULES = {
    "CSVLogger": "loggers.csv",
    "Logger": "loggers.base",
    "MLFlowLogger": "loggers.mlflow",
    "PixelRenderTransform": "pixel_render",
    "TensorDictRecorder": "tensordict_recorder",
    "TensorboardLogger": "loggers.tensorboard",
    "VideoFileLogger": "loggers.video_file",
    "VideoRecorder": "video_recorder",
    "VideoWriter": "video.writer",
    "WandbLogger": "loggers.wandb",
    "generate_exp_name": "loggers.lookup",
    "get_logger": "loggers.lookup",
    "write_video": "video.writer",
}

__all__ = [
    "CSVLogger",
    "Logger",
    "MLFlowLogger",
    "PixelRenderTransform",
    "TensorDictRecorder",
    "TensorboardLogger",
    "VideoFileLogger",
    "VideoRecorder",
    "VideoWriter",
    "WandbLogger",
    "generate_exp_name",
    "get_logger",
    "write_video",
]


def __getattr__(name: str) -> Any:
    # Imported at first use: loggers do not need the transforms, and this import must not load torch.
    if name not in _MODULES:
        raise AttributeError(f"module 'steppe_record' has no attribute {name!r}")
    from importlib import import_module

    value = globals()[name] = getattr(import_module(f".{_MODULES[name]}", __name__), name)
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
