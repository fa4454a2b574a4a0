"""ProcessSettings: environment variables, ``sys.path``, current folder and default dtype, for another process."""

from __future__ import annotations

import os
import sys
from typing import NamedTuple

import torch

__all__ = ["ProcessSettings"]


class ProcessSettings(NamedTuple):
    """Settings of a process on which an import may depend.

    Attributes:
        environ: environment variables.
        path: ``sys.path``.
        cwd: the current folder; None if it was deleted.
        dtype: torch's default dtype.
    """

    environ: dict[str, str]
    path: list[str]
    cwd: str | None
    dtype: torch.dtype

    @classmethod
    def now(cls) -> ProcessSettings:
        """The settings of this process."""
        try:
            cwd: str | None = os.getcwd()
        except FileNotFoundError:
            cwd = None
        return cls(dict(os.environ), list(sys.path), cwd, torch.get_default_dtype())

    def apply(self) -> None:
        """Give this process these settings."""
        os.environ.clear()
        os.environ.update(self.environ)
        sys.path[:] = self.path
        if self.cwd is not None and os.path.isdir(self.cwd):
            os.chdir(self.cwd)
        torch.set_default_dtype(self.dtype)
