"""Loggers of experiments, found by name in what is installed: ``from steppe.loggers import CSVLogger``.

The core has none. A package brings them as entry points of the group ``steppe.loggers``, the name of a class each. What
is logged to is anything with these methods: ``log_scalar(name, value, step=None)``, ``log_video(name, video, step=None,
**kwargs)``, ``log_hparams(cfg)`` and ``log_histogram(name, data, **kwargs)``.

As in :mod:`steppe.transforms`, a name that a known package would provide and that is not installed raises
:class:`~steppe.errors.LoggerNotFound`, in ``hasattr`` too. ``dir`` lists the installed ones.
"""

from __future__ import annotations

from typing import Any

__all__ = ["make_logger"]


def make_logger(name: str, *args: Any, **kwargs: Any) -> Any:
    """Make a logger of any installed package: ``make_logger("csv", "run", log_dir="logs")``.

    Args:
        name: of its class, or what stands before ``Logger`` in it, in any case.
        *args: for the class.
        **kwargs: the same.

    Raises:
        LoggerNotFound: a known package has it, and is not installed.
        AttributeError: nobody has it; the text suggests names that are like it.
        PluginError: two packages have it, or its package is hidden or broken.
    """
    from .registry import find_logger

    return find_logger(name)(*args, **kwargs)


def __getattr__(name: str) -> Any:
    from .registry import find_logger

    return find_logger(name)


def __dir__() -> list[str]:
    from .registry import list_loggers

    return sorted({*globals(), *list_loggers()})
