"""The ``steppe`` command. Loads torch only in the commands that make an environment."""

from __future__ import annotations

from .main import main

__all__ = ["main"]
