"""Experiment loggers of installed packages: ``from steppe.loggers import CSVLogger``.

The core has none. A package provides them with entry points of the group ``steppe.loggers``, each the name of a class.
A logger is any object with these methods: ``log_scalar(name, value, step=None)``, ``log_video(name, video, step=None,
**kwargs)``, ``log_hparams(cfg)`` and ``log_histogram(name, data, **kwargs)``.

As in :mod:`steppe.transforms`, the name of a known logger whose package is not installed raises
:class:`~steppe.errors.ClassNotFound`, in ``hasattr`` too. ``dir`` lists the installed loggers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from steppe.imports import lazy_exports

__all__: list[str] = []

__getattr__: Callable[[str], Any]
__getattr__, __dir__, _ = lazy_exports(__name__, kind="logger")
