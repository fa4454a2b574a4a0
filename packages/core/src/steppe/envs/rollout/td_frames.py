"""TensorDictFrames: the data of steps on TensorDicts, in memory of many steps or as a list that is stacked."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import torch
from tensordict import TensorDict, TensorDictBase

from steppe.envs.data_types import Array, Key
from steppe.envs.kept_entries import DeclaredKeys, is_kept, without_private
from steppe.envs.rollout.stacking import padding_like, stack_frames
from steppe.errors import SpecError
from steppe.storage import build_td, entries, large_tensor

__all__ = ["Step", "TensorDictFrames"]

#: Takes a step from a root. Returns its data, and the root of the next step; None ends the steps.
Step = Callable[[TensorDictBase], "tuple[TensorDictBase, TensorDictBase | None]"]

#: Entries with more bytes in one step are copied by numpy, because torch would take threads for it, from environments
#: that are still running.
_LARGE_ENTRY = 64 * 1024

#: Views of the memory of single steps are made for this many steps at once.
_VIEWS = 128

_copy: Callable[[list[torch.Tensor], list[torch.Tensor]], None] = torch._foreach_copy_


class TensorDictFrames:
    """Keeps the data of steps on TensorDicts: root and ``next``, of a rollout or of a batch.

    If all entries are tensors, each step is copied to memory ``[*B, T]`` at once. A policy may then write into the next
    root, which shares its tensors with ``next``, and the memory of the step is free for later steps. Text, lazy stacks
    and tensors with a gradient are kept as a list and stacked at the end.

    Args:
        dim: position of the time dimension: behind the batch.
        most: the largest number of steps, T.
        declared: private entries that are kept.
        in_memory: False keeps a list in any case.
        fixed: if entries in memory change from step to step, raise an error; otherwise a list is kept from there on.

    Attributes:
        taken: how many steps there are.
    """

    taken: int

    def __init__(
        self, dim: int, most: int, declared: DeclaredKeys, *, in_memory: bool = True, fixed: bool = False
    ) -> None:
        self._dim, self._most, self._declared = dim, most, declared
        self._in_memory, self._fixed = in_memory, fixed
        self._memory: Mapping[Key, torch.Tensor] = {}
        self.forget()

    def forget(self) -> None:
        """Drop the steps that were taken, and use other memory for later ones."""
        self.taken = 0
        self._frames: list[TensorDictBase] = []
        #: All steps in memory, ``[*B, T]``; None if they are kept as a list.
        self._td: TensorDict | None = None

    def keep_in(self, memory: Mapping[Key, torch.Tensor]) -> None:
        """Keep the frames in other memory, those that were taken included.

        Args:
            memory: tensors ``[*B, T, *shape]`` by key. Entries without one get new memory.
        """
        self._memory = memory
        if self._td is not None:
            before = self._columns
            self._use(self._td)
            for key, column in self._columns.items():
                column.narrow(self._dim, 0, self.taken).copy_(before[key].narrow(self._dim, 0, self.taken))

    @property
    def are_in_memory(self) -> bool:
        """Whether the steps that were taken are in memory; False if they are kept as a list."""
        return self._td is not None

    # -- steps --------------------------------------------------------------------------------------------------------

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

        Raises:
            SpecError: ``fixed`` is set, and the entries of a step differ from those of the first.
        """
        following: TensorDictBase | None = root
        while following is not None:
            frame, following = step(following)
            self._add(frame)
            if self.taken == end or (stopped is not None and stopped()):
                break
        return following

    def _add(self, frame: TensorDictBase) -> None:
        if not self.taken and self._in_memory and self._fits_in_memory(frame):
            self._allocate(frame)
        if self._td is not None and not self._write(frame):
            if self._fixed:
                raise self._changed(frame)
            self._frames, self._td = list(self._part(self.taken).unbind(self._dim)), None
        if self._td is None:
            self._frames.append(frame)
        self.taken += 1

    def _write(self, frame: TensorDictBase) -> bool:
        """Copy a step to the memory; return False if its entries differ from those of the first."""
        found = dict(_leaves(frame, self._declared))
        if found.keys() != self._columns.keys():
            return False
        values = [found[key] for key in self._columns]
        keeps_gradients = torch.is_grad_enabled()
        for value, (shape, dtype) in zip(values, self._types, strict=True):
            if not isinstance(value, torch.Tensor) or value.shape != shape or value.dtype is not dtype:
                return False
            if keeps_gradients and value.requires_grad:
                return False
        at = self.taken % _VIEWS
        if not at or not self._views:
            size = min(_VIEWS, self._most - self.taken + at)
            columns = [column.narrow(self._dim, self.taken - at, size) for column in self._small]
            self._views = [list(row) for row in zip(*(column.unbind(self._dim) for column in columns), strict=True)]
        n = len(self._small)
        if n:
            _copy(self._views[at], values[:n])
        for array, value in zip(self._large, values[n:], strict=True):
            np.copyto(array[self.taken], value.detach().numpy())
        return True

    def _changed(self, frame: TensorDictBase) -> SpecError:
        found = dict(_leaves(frame, self._declared))
        problems = [f"{key!r} is missing" for key in self._columns if key not in found]
        problems += [f"{key!r} is new" for key in sorted(found.keys() - self._columns.keys(), key=str)]
        for key, (shape, dtype) in zip(self._columns, self._types, strict=True):
            value = found.get(key)
            if isinstance(value, torch.Tensor) and value.shape != shape:
                problems.append(f"{key!r} had shape {tuple(shape)} and now has {tuple(value.shape)}")
            elif isinstance(value, torch.Tensor) and value.dtype is not dtype:
                problems.append(f"{key!r} was {dtype} and now is {value.dtype}")
            elif value is not None and not isinstance(value, torch.Tensor):
                problems.append(f"{key!r} was a tensor and now is a {type(value).__name__}")
        return SpecError(
            f"The data of a step differs from that of the first: {'; '.join(problems)}. Policies write the same "
            "entries in each step; what they read from the step before is there at a reset if a TensorDictPrimer "
            "puts it there."
        )

    # -- memory -------------------------------------------------------------------------------------------------------

    def _fits_in_memory(self, frame: TensorDictBase) -> bool:
        return type(frame) is TensorDict and all(
            isinstance(value, torch.Tensor)
            and not value.is_nested
            and not (value.requires_grad and torch.is_grad_enabled())
            for _, value in _leaves(frame, self._declared)
        )

    def _allocate(self, frame: TensorDictBase) -> None:
        """Get memory for steps like this one, unless there is not enough: then steps are kept as a list."""
        dim, most = self._dim, self._most

        def room(value: torch.Tensor) -> torch.Tensor:
            shape = (*value.shape[:dim], most, *value.shape[dim:])
            large = large_tensor(shape, value)
            return torch.empty(shape, dtype=value.dtype, device=value.device) if large is None else large

        try:
            self._use(_like(frame, self._declared, dim, most, room))
        except (MemoryError, OSError, OverflowError, RuntimeError):  # most is too large, and may never be reached
            self._td = None

    def _use(self, td: TensorDict) -> None:
        """Keep the steps in data ``[*B, T]``, and in the memory that was given for some of its entries."""
        memory, dim = self._memory, self._dim
        columns = {key: memory.get(key, column) for key, column in _leaves(td, self._declared)}
        large = [key for key, column in columns.items() if column.is_cpu and _bytes(column) > _LARGE_ENTRY * self._most]
        #: Tensors ``[*B, T, *shape]`` by key, the small ones first.
        self._columns = {key: columns[key] for key in (*(key for key in columns if key not in large), *large)}
        self._types = [
            (torch.Size((*column.shape[:dim], *column.shape[dim + 1 :])), column.dtype)
            for column in self._columns.values()
        ]
        self._small = [column for key, column in self._columns.items() if key not in large]
        self._large: list[Array] = [np.moveaxis(columns[key].numpy(), dim, 0) for key in large]
        self._views: list[list[torch.Tensor]] = []
        for key in columns.keys() & memory.keys():
            td.set(key, columns[key])
        self._td = td

    def _part(self, steps: int) -> TensorDictBase:
        assert self._td is not None
        return self._td[(slice(None),) * self._dim + (slice(steps),)]

    # -- the result ---------------------------------------------------------------------------------------------------

    def result(self, *, whole: bool = False, contiguous: bool | None = False) -> TensorDictBase:
        """Return the steps that were taken as one TensorDict ``[*B, T]``.

        Args:
            whole: add frames of zeros up to the largest number of steps, and None for text and the like.
            contiguous: see :func:`stack_frames`.

        Raises:
            NotSupported: ``contiguous`` is True, and the frames cannot be stacked.
        """
        missing = self._most - self.taken if whole else 0
        if self._td is not None:
            for column in self._columns.values() if missing else ():
                column.narrow(self._dim, self.taken, missing).zero_()
            return self._td if whole or self.taken == self._most else self._part(self.taken)
        frames = list(self._frames)
        if missing:
            frames += [padding_like(frames[-1])] * missing
        return without_private(stack_frames(frames, self._dim, contiguous=contiguous), self._declared)


def _bytes(value: torch.Tensor) -> int:
    return value.numel() * value.element_size()


def _leaves(data: TensorDictBase, declared: DeclaredKeys, above: tuple[str, ...] = ()) -> Iterator[tuple[Key, Any]]:
    """Yield the entries that are kept; those that are no plain TensorDict count as one."""
    if type(data) is not TensorDict:
        yield above, data
        return
    for name, value in entries(data).items():
        if name[0] == "_" and not is_kept((*above, name), declared):
            continue
        if type(value) is TensorDict:
            yield from _leaves(value, declared, (*above, name))
        else:
            yield ((*above, name) if above else name), value


def _like(
    data: TensorDictBase,
    declared: DeclaredKeys,
    dim: int,
    steps: int,
    room: Callable[[torch.Tensor], torch.Tensor],
    above: tuple[str, ...] = (),
) -> TensorDict:
    """Return a TensorDict for many steps with the structure of one, and memory from ``room`` for each tensor."""
    assert type(data) is TensorDict
    out: dict[str, Any] = {}
    for name, value in entries(data).items():
        if is_kept((*above, name), declared):
            is_group = type(value) is TensorDict
            out[name] = _like(value, declared, dim, steps, room, (*above, name)) if is_group else room(value)
    return build_td(out, torch.Size((*data.batch_size[:dim], steps, *data.batch_size[dim:])), data.device)
