"""PinMemoryTransform: copy data to page-locked memory."""

from __future__ import annotations

from typing import Any

import torch
from tensordict import TensorDictBase

from steppe.arguments import ignored_argument
from steppe.transforms import EnvSpecs, Hooks, PlannedTransform

__all__ = ["PinMemoryTransform"]


class PinMemoryTransform(PlannedTransform):
    """Copy data to page-locked memory, for faster transfers to a GPU.

    The data of resets and steps is copied. The environment is then stepped on TensorDicts, because rows of arrays have
    their own memory. Rollouts and collectors stack the data in memory that is not page-locked. Without a GPU, the
    transform does nothing and warns once (IgnoredArgumentWarning).

    >>> import warnings
    >>> from steppe import PinMemoryTransform, TransformedEnv, make_env
    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter("ignore")  # a machine without a GPU has no page-locked memory
    ...     env = TransformedEnv(make_env("gym:CartPole-v1"), PinMemoryTransform())
    ...     root = env.reset()
    >>> import torch
    >>> root["observation"].is_pinned() == torch.cuda.is_available()
    True
    """

    def __init__(self) -> None:
        super().__init__()

    def hooks(self, specs: EnvSpecs) -> Hooks:
        if not self._has_gpu():
            return Hooks()
        return Hooks(
            step=lambda _, following: following.pin_memory(),
            reset=lambda _, fresh: fresh.pin_memory(),
            reads_root=False,
            no_rows_reason="pins memory, and rows of arrays have their own memory",
        )

    def forward(self, tensordict: TensorDictBase) -> TensorDictBase:
        """Return the data in page-locked memory."""
        return tensordict.pin_memory() if self._has_gpu() else tensordict

    def _has_gpu(self) -> bool:
        if torch.cuda.is_available():
            return True
        ignored_argument("PinMemoryTransform", "memory", "there is no GPU to copy to", kind="page-locked")
        return False

    def shared_key(self) -> Any:
        return (type(self),)
