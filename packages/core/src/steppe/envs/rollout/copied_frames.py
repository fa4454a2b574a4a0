"""CopiedFrames: large entries of a rollout's steps, copied to the memory of the result step by step."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from tensordict import TensorDict, TensorDictBase

from steppe.envs.data_types import Array
from steppe.specs import torch_to_numpy_dtype_dict
from steppe.storage import LARGE, entries, large_array, level_at, shallow_copy

__all__ = ["Columns", "CopiedFrames"]

#: Entries with fewer bytes in one step are stacked at the end, because a call for each copy would take longer.
_MIN_BYTES = 64 * 1024

_Path = tuple[str, ...]
#: Entries ``[*B, T, *shape]`` of all steps by their path.
Columns = dict[_Path, torch.Tensor]


class CopiedFrames:
    """Copies the large entries of each step to memory of all steps, when the next step is added.

    Until then the step may change: a policy may write into the next root, which shares its tensors with ``next``. After
    the copy the step holds views of the memory of all steps, so that its own memory is free for later steps. The system
    then does not have to provide new pages for the images of each step.

    Args:
        dim: position of the time dimension: behind the batch.
        steps: number of steps.

    Attributes:
        steps_copied: the number of steps whose large entries have been copied.
    """

    def __init__(self, dim: int, steps: int) -> None:
        self.dim, self.steps = dim, steps
        self.steps_copied = 0
        self._columns: dict[_Path, Array] | None = None
        self._pending: TensorDict | None = None
        self._gives_up = False

    def add(self, frame: TensorDictBase) -> TensorDictBase:
        """Add a step, and return a TensorDict that holds its data from now on; ``frame`` itself is not changed."""
        self.catch_up()
        if self._gives_up or type(frame) is not TensorDict:
            self._gives_up = True
            return frame
        self._pending = shallow_copy(frame)
        return self._pending

    def catch_up(self) -> None:
        """Copy the last step, unless it has been copied."""
        frame, self._pending = self._pending, None
        if frame is None:
            return
        if self._columns is None:
            self._columns = self._begun(frame)
        places = [(column, level_at(frame, path[:-1]) or {}, path[-1]) for path, column in self._columns.items()]
        if not places or any(not self._fits(level.get(name), column) for column, level, name in places):
            self._gives_up = True  # the steps are stacked at the end instead
            return
        at = (slice(None),) * self.dim + (self.steps_copied,)
        for column, level, name in places:
            place = column[at]
            # numpy, because torch would take threads for it, from environments that are still running.
            np.copyto(place, level[name].numpy())
            level[name] = torch.from_numpy(place)
        self.steps_copied += 1

    def columns(self, steps: int) -> Columns:
        """Return the large entries of all steps, by their path; an empty dict unless ``steps`` steps were copied."""
        self.catch_up()
        if self._columns is None or not self.steps == self.steps_copied == steps:
            return {}
        return {path: torch.from_numpy(column) for path, column in self._columns.items()}

    def _begun(self, frame: TensorDict) -> dict[_Path, Array]:
        columns = {}
        for path, value in _leaves(frame, ()):
            nbytes = value.numel() * value.element_size()
            if nbytes < _MIN_BYTES or nbytes * self.steps < LARGE or value.dtype not in torch_to_numpy_dtype_dict:
                continue
            shape = (*value.shape[: self.dim], self.steps, *value.shape[self.dim :])
            try:
                columns[path] = large_array(shape, torch_to_numpy_dtype_dict[value.dtype])
            except (MemoryError, OSError, OverflowError):  # max_steps is too large, and may never be reached
                return {}
        return columns

    def _fits(self, value: Any, column: Array) -> bool:
        return (
            type(value) is torch.Tensor
            and value.device.type == "cpu"
            and not value.requires_grad
            and torch_to_numpy_dtype_dict.get(value.dtype) == column.dtype
            and value.shape == column.shape[: self.dim] + column.shape[self.dim + 1 :]
        )


def _leaves(data: TensorDict, above: _Path) -> Iterator[tuple[_Path, torch.Tensor]]:
    for name, value in entries(data).items():
        if type(value) is TensorDict:
            yield from _leaves(value, (*above, name))
        elif type(value) is torch.Tensor:
            yield (*above, name), value
