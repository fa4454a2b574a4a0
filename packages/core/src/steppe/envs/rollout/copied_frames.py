"""Large entries of a rollout's steps, copied to where the result is while the environment takes the next step."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from tensordict import TensorDict, TensorDictBase

from steppe.envs.data_types import Array
from steppe.specs import torch_to_numpy_dtype_dict
from steppe.storage import LARGE, build_td, copy_names, entries, large_array

__all__ = ["Columns", "CopiedFrames"]

#: Bytes of an entry in one step from which on its copy is worth a call of its own.
_WORTH = 64 * 1024

_Path = tuple[str, ...]
#: Entries of all steps by their path.
Columns = dict[_Path, torch.Tensor]


class CopiedFrames:
    """Copies the large entries of each step to memory of all steps, one step later.

    Until then the step may be edited, as data that is stacked at the end may be: by a policy, to which ``next`` is the
    root of the following step. After it the step holds views of that memory, so that its own is free for steps to come.

    Args:
        dim: where the time dimension goes: behind the batch.
        steps: how many there will be.

    Attributes:
        steps_copied: how many steps have their large entries in memory of all steps.
    """

    def __init__(self, dim: int, steps: int) -> None:
        self.dim, self.steps = dim, steps
        self.steps_copied = 0
        self._columns: dict[_Path, Array] | None = None
        self._pending: TensorDict | None = None
        self._gives_up = False

    def add(self, frame: TensorDictBase) -> TensorDictBase:
        """Take a step; what is returned holds its data from now on, and the step itself is left as it is."""
        self.catch_up()
        if self._gives_up or type(frame) is not TensorDict:
            self._gives_up = True
            return frame
        self._pending = _copied_levels(frame)
        return self._pending

    def catch_up(self) -> None:
        """Copy the step that was taken last, if that has not been done."""
        frame, self._pending = self._pending, None
        if frame is None:
            return
        if self._columns is None:
            self._columns = self._begun(frame)
        found = [(column, *_place_of(frame, path)) for path, column in self._columns.items()]
        if not found or any(not self._fits(level.get(name), column) for column, level, name in found):
            self._gives_up = True  # it is stacked at the end, which finds out what can be done
            return
        at = (slice(None),) * self.dim + (self.steps_copied,)
        for column, level, name in found:
            place = column[at]
            # numpy, because torch would take threads for it, from environments that are still running.
            np.copyto(place, level[name].numpy())
            level[name] = torch.from_numpy(place)
        self.steps_copied += 1

    def columns(self, steps: int) -> Columns:
        """The large entries of so many steps, by their path; none where fewer were copied, or others were expected."""
        self.catch_up()
        if self._columns is None or not self.steps == self.steps_copied == steps:
            return {}
        return {path: torch.from_numpy(column) for path, column in self._columns.items()}

    def _begun(self, frame: TensorDict) -> dict[_Path, Array]:
        columns = {}
        for path, value in _leaves(frame, ()):
            nbytes = value.numel() * value.element_size()
            if nbytes < _WORTH or nbytes * self.steps < LARGE or value.dtype not in torch_to_numpy_dtype_dict:
                continue
            shape = (*value.shape[: self.dim], self.steps, *value.shape[self.dim :])
            try:
                columns[path] = large_array(shape, torch_to_numpy_dtype_dict[value.dtype])
            except (MemoryError, OSError, OverflowError):  # more steps than can be kept, which may never be taken
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


def _copied_levels(data: TensorDict) -> TensorDict:
    """A copy that shares its tensors, at every level."""
    level = {
        name: _copied_levels(value) if type(value) is TensorDict else value for name, value in entries(data).items()
    }
    return copy_names(data, build_td(level, data.batch_size, data.device))


def _leaves(data: TensorDict, above: _Path) -> Any:
    for name, value in entries(data).items():
        if type(value) is TensorDict:
            yield from _leaves(value, (*above, name))
        elif type(value) is torch.Tensor:
            yield (*above, name), value


def _place_of(data: TensorDict, path: _Path) -> tuple[dict[str, Any], str]:
    """The level of an entry, empty where there is none, and its name there."""
    level: Any = data
    for name in path[:-1]:
        level = entries(level).get(name) if type(level) is TensorDict else None
    return (entries(level) if type(level) is TensorDict else {}), path[-1]
