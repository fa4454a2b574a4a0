"""Measure how an environment is stepped fastest on this machine: ``steppe tune ID`` and :func:`tune`."""

from __future__ import annotations

from .results import EnvCost, Measured, Setting, Tuning
from .tuner import tune

__all__ = ["EnvCost", "Measured", "Setting", "Tuning", "tune"]
