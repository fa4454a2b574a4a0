"""StoredDataTransform: the base class of transforms of stored data, which environments cannot have."""

from __future__ import annotations

from typing import Any

from steppe.errors import NotSupported
from steppe.transforms import EnvSpecs, Transform

__all__ = ["StoredDataTransform"]


class StoredDataTransform(Transform):
    """Base class of transforms of stored data: samples of a replay buffer, or data on its way into one."""

    writes_done = False
    writes_step = False
    #: What to do in an environment instead, as sentences.
    instead: str = ""

    def hooks(self, specs: EnvSpecs) -> Any:
        raise NotSupported(
            f"{type(self).__name__} works on stored data only: pass it to a replay buffer, or call it on samples."
            + (f" {self.instead}" if self.instead else "")
        )
