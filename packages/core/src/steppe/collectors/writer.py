"""FrameWriter and FrameList: the frames of a batch until it is complete, in one memory or as a list."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import numpy as np
import torch
from tensordict import TensorDict, TensorDictBase, is_leaf_nontensor, is_non_tensor

from steppe.envs import DeclaredKeys, is_kept, stack_frames, without_private
from steppe.errors import NotSupported, SpecError
from steppe.specs import make_composite_from_td
from steppe.storage import LARGE, Storage, TensorDictBuilder, entries, storage_problem

__all__ = ["FrameList", "FrameWriter", "Key", "make_writer"]

Key: TypeAlias = "str | tuple[str, ...]"

#: Views of single steps are kept from batch to batch up to this number.
_MAX_VIEWS = 1 << 16

_copy: Callable[[list[torch.Tensor], list[torch.Tensor]], None] = torch._foreach_copy_


def make_writer(
    frame: TensorDictBase, steps: int, *, declared: DeclaredKeys, dynamic: bool = False
) -> FrameWriter | FrameList:
    """Return a writer for batches of frames like ``frame``: the data of one step, root and ``next``.

    Args:
        frame: the first frame.
        steps: the number of frames in a batch.
        declared: names with an underscore that are data nevertheless.
        dynamic: shapes change from step to step.
    """
    if dynamic:
        return FrameList(frame, steps, declared)
    try:
        leaves = dict(_leaves(frame, declared))
    except RuntimeError:  # a lazy stack whose rows have different shapes
        return FrameList(frame, steps, declared)
    if not all(isinstance(value, torch.Tensor) for value in leaves.values()):
        return FrameList(frame, steps, declared)
    devices = {value.device for value in leaves.values()}
    keys = list(leaves)
    row = frame.select(*keys)
    for _ in range(frame.batch_dims):
        row = row[0]
    spec = make_composite_from_td(row, unsqueeze_null_shapes=False)
    if len(devices) != 1 or storage_problem(spec) is not None:
        return FrameList(frame, steps, declared)
    return FrameWriter(spec, keys, frame, steps, devices.pop(), declared)


def _leaves(
    data: TensorDictBase, declared: DeclaredKeys, prefix: tuple[str, ...] = (), private: bool = False
) -> Iterator[tuple[Any, Any]]:
    """Yield all leaves that are data, non-tensor data included."""
    for name, value in data.items():
        path, hidden = (*prefix, name), private or name[0] == "_"
        if isinstance(value, TensorDictBase) and not is_non_tensor(value):
            yield from _leaves(value, declared, path, hidden)
        elif not hidden or is_kept(path, declared):
            yield (path if prefix else name), value


class FrameWriter:
    """Writes frames to memory ``[*B, T]``, from TensorDicts; steps on rows write ``next`` to ``arrays`` themselves.

    Attributes:
        td: all frames as one TensorDict of views.
        tensors, arrays: the memory of all frames by key, for torch and, on the host, for numpy.
        on_host: whether that memory is not on a GPU.
        root_keys, next_keys: keys of the leaves; the latter start with ``"next"``.
        flat: whether all groups of keys but ``"next"`` are flat.
    """

    def __init__(
        self,
        spec: Any,
        keys: list[Any],
        example: TensorDictBase,
        steps: int,
        device: torch.device,
        declared: DeclaredKeys,
    ) -> None:
        self.steps, self._declared = steps, declared
        self._rows, self._device = (*example.batch_size, steps), example.device
        self.dim = example.batch_dims
        self.on_host = device.type == "cpu"
        self.next_keys = [key for key in keys if key[0] == "next" and not isinstance(key, str)]
        following = set(self.next_keys)
        self.root_keys = [key for key in keys if key not in following]
        self._order = [*self.root_keys, *self.next_keys]
        self.flat = all(isinstance(key, str) for key in self.root_keys) and all(len(key) == 2 for key in self.next_keys)
        self._window = min(steps, _MAX_VIEWS // len(self._order) or 1)
        self._build, self._spec = TensorDictBuilder(spec, self._rows), spec
        if self.on_host:
            self._use_new_memory()
        else:
            storage = Storage(spec, self._rows, kind="cuda", device=device)
            self._use(storage.tensors, storage.arrays)
        nbytes = sum(tensor.numel() * tensor.element_size() for tensor in self.tensors.values())
        self._keeps_memory = nbytes < LARGE or not self.on_host

    def _use_new_memory(self) -> None:
        storage = Storage(self._spec, self._rows, unset=self._order)
        self._use(storage.tensors, storage.arrays)

    def _use(self, tensors: dict[Key, torch.Tensor], arrays: dict[Key, np.ndarray]) -> None:
        self.tensors, self.arrays = tensors, arrays
        td = self._build(tensors)
        self.td = td.to(self._device) if self._device is not None else td
        self.td.names = [None] * self.dim + ["time"]
        self._views: list[list[torch.Tensor]] = []
        self._first_view = 0

    def move_to(self, tensors: dict[Key, torch.Tensor], arrays: dict[Key, np.ndarray]) -> None:
        """Keep later batches in other memory, which another process reads.

        Args:
            tensors: views ``[*B, T, *S]`` of that memory by key. Entries without one stay where they are.
            arrays: the same memory for numpy.
        """
        self._keeps_memory = True
        shared_keys = self.tensors.keys() & tensors.keys()
        self._use(
            {**self.tensors, **{key: tensors[key] for key in shared_keys}},
            {**self.arrays, **{key: arrays[key] for key in shared_keys if key in arrays}},
        )

    def write(self, frame: TensorDictBase, step: int) -> None:
        """Copy the data of one step.

        Raises:
            SpecError: its entries or shapes differ from those of the first step.
        """
        views, values = self.step_views(step), self._values(frame)
        for target, source in zip(views, values, strict=True):
            if target.shape != source.shape:
                raise self._changed(frame, self._order)
        _copy(views, values)

    def _values(self, frame: TensorDictBase) -> list[Any]:
        """Return the values of a frame, in the order of the views."""
        if self.flat and type(frame) is TensorDict:
            level = entries(frame)
            below = level.get("next")
            if type(below) is TensorDict and len(level) == len(self.root_keys) + 1:
                under = entries(below)
                if len(under) == len(self.next_keys):
                    try:
                        return [level[key] for key in self.root_keys] + [under[key[1]] for key in self.next_keys]
                    except KeyError:
                        pass
        if {key for key, _ in _leaves(frame, self._declared)} != set(self._order):
            raise self._changed(frame, self._order)
        return [frame.get(key) for key in self._order]

    def write_root(self, step: int, root: TensorDictBase) -> None:
        """Copy the root of one step, whose ``next`` is written to ``arrays``; entries not in ``root_keys`` are private.

        Raises:
            SpecError: its entries or shapes differ from those of the first step.
        """
        keys, level = self.root_keys, entries(root) if type(root) is TensorDict else root
        views: list[torch.Tensor] = []
        values: list[Any] = []
        for key, view in zip(keys, self.step_views(step), strict=False):
            value = level.get(key)
            if value is view:
                continue  # the root has the memory of this step
            if value is None or view.shape != value.shape:
                raise self._changed(root, keys)
            views.append(view)
            values.append(value)
        if len(level.keys()) != len(keys) and {key for key, _ in _leaves(root, self._declared)} != set(keys):
            raise self._changed(root, keys)
        if values:
            _copy(views, values)

    def step_views(self, step: int) -> list[torch.Tensor]:
        """Return views of the memory of one step, in the order of ``root_keys`` and ``next_keys``."""
        first = step - step % self._window
        if first != self._first_view or not self._views:
            size = min(self._window, self.steps - first)
            columns = [self.tensors[key].narrow(self.dim, first, size).unbind(self.dim) for key in self._order]
            self._views, self._first_view = [list(row) for row in zip(*columns, strict=True)], first
        return self._views[step - first]

    def _changed(self, frame: TensorDictBase, expected: list[Any]) -> SpecError:
        keys = {key for key, _ in _leaves(frame, self._declared)}
        problems = [f"{key!r} is missing" for key in expected if key not in keys]
        problems += [f"{key!r} is new" for key in sorted(keys - set(expected), key=str)]
        for key, view in zip(expected, self.step_views(0), strict=False):
            value = frame.get(key, None)
            if value is not None and value.shape != view.shape:
                problems.append(f"{key!r} had shape {tuple(view.shape)} and now has {tuple(value.shape)}")
        return SpecError(
            f"The data of a step differs from that of the first: {'; '.join(problems)}. Policies write the same "
            "entries in each step; what they read from the step before is there at a reset if a TensorDictPrimer "
            "puts it there."
        )

    def released(self, batch: TensorDictBase) -> TensorDictBase:
        """Return the entries of ``td`` in ``batch`` so that later batches do not overwrite them.

        A small batch is copied: new memory would need new views of each step, which take longer. A large one, of images
        for example, is given away, and later batches are written to other memory.
        """
        if self._keeps_memory:
            return batch.clone()
        self._use_new_memory()
        return batch

    def finish(self, written: int) -> TensorDictBase:
        """Return ``td``.

        Args:
            written: how many steps were written; the others become zeros.
        """
        if written < self.steps:
            for tensor in self.tensors.values():
                tensor.narrow(self.dim, written, self.steps - written).zero_()
        return self.td


class FrameList:
    """Keeps frames with text, or of changing shapes, as a list, and stacks them, lazily if they differ in shape."""

    def __init__(self, example: TensorDictBase, steps: int, declared: DeclaredKeys) -> None:
        self.dim, self._steps, self._declared = example.batch_dims, steps, declared
        self._frames: list[TensorDictBase] = []

    def write(self, frame: TensorDictBase, step: int) -> None:
        """Keep the data of one step. Step 0 begins a batch, even if the one before was not completed."""
        if not step:
            self._frames = []
        self._frames.append(without_private(frame, self._declared).copy())

    def released(self, batch: TensorDictBase) -> TensorDictBase:
        """Return ``batch``: later batches are stacked to other memory."""
        return batch

    def finish(self, written: int) -> TensorDictBase:
        """Stack the frames.

        Args:
            written: how many steps were written; the missing ones of a batch that ended early are zeros, and None for
                text and the like.

        Raises:
            NotSupported: they have different entries.
        """
        frames, self._frames = self._frames, []
        if written < self._steps:
            frames += [_padding_like(frames[-1])] * (self._steps - written)
        try:
            return stack_frames(frames, self.dim)
        except (RuntimeError, KeyError) as error:
            raise NotSupported(f"The steps of this batch cannot be put together: {error}") from error


def _padding_like(frame: TensorDictBase) -> TensorDictBase:
    """Return a frame of zeros with the entries of ``frame``; text and the like are None."""
    padding = frame.clone().zero_()
    for key, value in list(padding.items(True, True, is_leaf=is_leaf_nontensor)):
        if is_non_tensor(value):
            padding.set_non_tensor(key, None)
    return padding
