"""PinMemoryTransform: data in page-locked memory."""

from __future__ import annotations

from typing import Any

import torch
from tensordict import TensorDictBase

from steppe.arguments import ignored_argument
from steppe.transforms import EnvSpecs, Hooks, PlannedTransform

__all__ = ["PinMemoryTransform"]


class PinMemoryTransform(PlannedTransform):
    """Puts what resets and steps return into page-locked memory, from which copies to a GPU are faster.

    The environment is then stepped on TensorDicts, because rows of arrays lie in memory of their own. Rollouts and
    collectors stack what they return, which is not page-locked. Where there is no GPU it does nothing, and says so once
    with an IgnoredArgumentWarning.
    """

    def __init__(self) -> None:
        super().__init__()

    def hooks(self, specs: EnvSpecs) -> Hooks:
        if not self._there_is_a_gpu():
            return Hooks()
        return Hooks(
            step=lambda _, following: following.pin_memory(),
            reset=lambda _, fresh: fresh.pin_memory(),
            reads_root=False,
            needs_tensordicts="pins memory, and rows of arrays have memory of their own",
        )

    def forward(self, tensordict: TensorDictBase) -> TensorDictBase:
        """Return the data in page-locked memory."""
        return tensordict.pin_memory() if self._there_is_a_gpu() else tensordict

    def _there_is_a_gpu(self) -> bool:
        if torch.cuda.is_available():
            return True
        ignored_argument("PinMemoryTransform", "memory", "there is no GPU to copy to", kind="page-locked")
        return False

    def shared_key(self) -> Any:
        return (type(self),)
