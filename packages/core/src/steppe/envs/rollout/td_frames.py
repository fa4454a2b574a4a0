"""TensorDictFrames: the data of steps on TensorDicts, which are stacked when all have been taken."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import torch
from tensordict import TensorDict, TensorDictBase

from steppe.envs.data_types import Array, Key
from steppe.envs.kept_entries import DeclaredKeys, without_private
from steppe.envs.rollout.stacking import padding_like, stack_frames
from steppe.specs import as_path, torch_to_numpy_dtype_dict
from steppe.storage import LARGE, build_td, entries, large_array, level_at, shallow_copy

__all__ = ["Step", "TensorDictFrames"]

#: Takes a step from a root. Returns its data, and the root of the next step; None ends the steps.
Step = Callable[[TensorDictBase], "tuple[TensorDictBase, TensorDictBase | None]"]

#: Entries with fewer bytes in one step are stacked at the end: a call for each copy would take ten times as long.
_MIN_BYTES = 64 * 1024

_Path = tuple[str, ...]


class TensorDictFrames:
    """Take steps on TensorDicts, and keep the data of each: root and ``next``, of a rollout or of a batch.

    The steps are stacked at the end. Large entries are copied to memory ``[*B, T]`` at each step, so that the memory of
    the step is free for later ones: the system then does not have to provide new pages for the images of each step.

    Args:
        dim: position of the time dimension: behind the batch.
        most: the largest number of steps, T.
        declared: private entries that are kept.
        copies_large: copy large entries at each step; False if many steps may be missing in the end.
        changes_roots: a policy may write into a root in place. It shares its tensors with ``next`` of the step before,
            which is copied therefore.

    """

    def __init__(self, dim: int, most: int, declared: DeclaredKeys, *, copies_large: bool, changes_roots: bool) -> None:
        self._dim, self._most, self._declared = dim, most, declared
        self._copies_large, self._changes_roots = copies_large, changes_roots
        self._memory: dict[_Path, torch.Tensor] = {}
        self.forget()

    def forget(self) -> None:
        """Drop the steps that were taken, and use other memory for later ones."""
        self._frames: list[TensorDictBase] = []
        #: Arrays ``[*B, T, *shape]`` of the large entries; None before the first step.
        self._columns: dict[_Path, Array] | None = None if self._copies_large else {}

    @property
    def taken(self) -> int:
        """How many steps there are."""
        return len(self._frames)

    def keep_in(self, memory: Mapping[Key, torch.Tensor]) -> None:
        """Keep the frames in other memory, those that were taken included.

        Args:
            memory: tensors ``[*B, T, *shape]`` by key. Entries without one get new memory.
        """
        self._memory = {as_path(key): tensor for key, tensor in memory.items()}
        for path, column in (self._columns or {}).items():
            if path in self._memory:
                moved = self._memory[path].numpy()
                moved[self._before(self.taken)] = column[self._before(self.taken)]
                self._columns = {**(self._columns or {}), path: moved}

    def _before(self, step: int) -> tuple[slice, ...]:
        return (*(slice(None),) * self._dim, slice(step))

    def run(
        self, step: Step, root: TensorDictBase, end: int, *, stopped: Callable[[], bool] | None = None
    ) -> TensorDictBase | None:
        """Take steps, after those that were taken already.

        Args:
            step: takes one step.
            root: the root of the first of these steps.
            end: how many steps there are then.
            stopped: called after each step; True ends the steps there.

        Returns:
            The root of the step that follows.
        """
        following: TensorDictBase | None = root
        while following is not None:
            frame, following = step(following)
            self._add(frame)
            if self.taken == end or (stopped is not None and stopped()):
                break
        return following

    def _add(self, frame: TensorDictBase) -> None:
        if self._columns is None:
            self._columns = self._columns_like(frame)
        if self._columns:
            frame = shallow_copy(frame)
            self._copy_large(frame)
        if self._changes_roots:
            following = _copied(frame.get("next"), self._columns, ("next",))
            if type(frame) is TensorDict:
                frame = build_td({**entries(frame), "next": following}, frame.batch_size, frame.device)
            else:
                frame = frame.copy().set("next", following)
        self._frames.append(frame)

    def _copy_large(self, frame: TensorDictBase) -> None:
        """Copy the large entries of a step to the memory, and replace them with views of it."""
        assert self._columns is not None
        places = [(column, level_at(frame, path[:-1]) or {}, path[-1]) for path, column in self._columns.items()]
        if any(not self._fits(level.get(name), column) for column, level, name in places):
            self._columns = {}  # all entries are stacked at the end instead
            return
        at = (slice(None),) * self._dim + (self.taken,)
        for column, level, name in places:
            place = column[at]
            # numpy, because torch would take threads for it, from environments that are still running.
            np.copyto(place, level[name].detach().numpy())
            level[name] = torch.from_numpy(place)

    def _columns_like(self, frame: TensorDictBase) -> dict[_Path, Array]:
        columns = {}
        for path, value in _leaves(frame, ()):
            nbytes = value.numel() * value.element_size()
            is_large = nbytes >= _MIN_BYTES and nbytes * self._most >= LARGE
            if not is_large or not value.is_cpu or value.dtype not in torch_to_numpy_dtype_dict:
                continue
            if path in self._memory:
                columns[path] = self._memory[path].numpy()
                continue
            shape = (*value.shape[: self._dim], self._most, *value.shape[self._dim :])
            try:
                columns[path] = large_array(shape, torch_to_numpy_dtype_dict[value.dtype])
            except (MemoryError, OSError, OverflowError):  # most is too large, and may never be reached
                return {}
        return columns

    def _fits(self, value: object, column: Array) -> bool:
        return (
            type(value) is torch.Tensor
            and value.is_cpu
            and not (value.requires_grad and torch.is_grad_enabled())
            and torch_to_numpy_dtype_dict.get(value.dtype) == column.dtype
            and value.shape == column.shape[: self._dim] + column.shape[self._dim + 1 :]
        )

    def result(self, *, whole: bool = False, contiguous: bool | None = False) -> TensorDictBase:
        """Return the steps that were taken as one TensorDict ``[*B, T]``.

        Args:
            whole: add frames of zeros up to the largest number of steps, and None for text and the like.
            contiguous: see :func:`stack_frames`.

        Raises:
            NotSupported: ``contiguous`` is True, and the frames cannot be stacked; the text names an entry.
        """
        frames, columns, taken = list(self._frames), self._columns or {}, self.taken
        if whole and taken < self._most:
            frames += [padding_like(frames[-1])] * (self._most - taken)
            for column in columns.values():
                column[(*(slice(None),) * self._dim, slice(taken, None))] = 0
        known = {path: torch.from_numpy(column) for path, column in columns.items()}
        stacked = stack_frames(
            frames,
            self._dim,
            contiguous=contiguous,
            known=known if len(frames) == self._most else None,
            memory=self._memory,
        )
        return without_private(stacked, self._declared)


def _copied(data: TensorDictBase, columns: Mapping[_Path, Array], above: _Path) -> TensorDictBase:
    """Return a copy of data, faster than ``clone``. The entries that have a column were copied already."""
    if type(data) is not TensorDict:
        return data.clone()
    level: dict[str, Any] = {}
    for name, value in entries(data).items():
        if isinstance(value, torch.Tensor):
            level[name] = value if (*above, name) in columns else value.clone()
        else:
            level[name] = _copied(value, columns, (*above, name))
    return build_td(level, data.batch_size, data.device)


def _leaves(data: TensorDictBase, above: _Path) -> Iterator[tuple[_Path, torch.Tensor]]:
    """Yield the tensors of plain TensorDicts."""
    for name, value in entries(data).items() if type(data) is TensorDict else ():
        if type(value) is torch.Tensor:
            yield (*above, name), value
        else:
            yield from _leaves(value, (*above, name))
