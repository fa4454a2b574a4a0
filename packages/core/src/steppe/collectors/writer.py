"""FrameWriter and FrameList: the frames of a batch until it is complete, in one memory or as a list."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeAlias

import numpy as np
import torch
from tensordict import TensorDict, TensorDictBase, is_leaf_nontensor, is_non_tensor

from steppe.envs import DeclaredKeys, is_kept, stack_frames, without_private
from steppe.errors import NotSupported, SpecError
from steppe.specs import below_next, make_composite_from_td
from steppe.storage import Storage, TensorDictBuilder, entries, storage_problem

__all__ = ["FrameList", "FrameWriter", "Key", "make_writer"]

Key: TypeAlias = "str | tuple[str, ...]"

#: Views of single steps are kept from batch to batch up to this number.
_MAX_VIEWS = 1 << 16

_foreach_copy = getattr(torch, "_foreach_copy_", None)


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
    """Writes frames to memory ``[*B, T]``, from a TensorDict for each step or from values.

    Where the root entries of a step equal the ``next`` entries of the frame before, :meth:`write_values` leaves them
    out: they are copied for all such steps at once when the batch is complete.

    Attributes:
        td: all frames as one TensorDict of views.
        tensors, arrays: the memory of all frames by key, for torch and, on the host, for numpy.
        on_host: whether that memory is not on a GPU.
        root_keys, next_keys: keys of the leaves; the latter start with ``"next"``.
        carried: root keys whose values the step before may have written, with their keys under ``next``.
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
        sources = {key: below_next(key) for key in keys if key not in following}
        self.carried = {key: source for key, source in sources.items() if source in following}
        self._own = [key for key in sources if key not in self.carried]
        self.root_keys = [*self.carried, *self._own]
        self._order = [*self.root_keys, *self.next_keys]
        self.flat = all(isinstance(key, str) for key in self.root_keys) and all(len(key) == 2 for key in self.next_keys)
        self._window = min(steps, _MAX_VIEWS // len(self._order) or 1)
        self._build = TensorDictBuilder(spec, self._rows)
        storage = Storage(spec, self._rows) if self.on_host else Storage(spec, self._rows, kind="cuda", device=device)
        self._use(storage.tensors, storage.arrays)
        #: The steps whose carried root entries are in the memory already.
        self._roots: list[int] = []
        self._filled: set[Any] = set()

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
        own = self.tensors.keys() & tensors.keys()
        self._use(
            {**self.tensors, **{key: tensors[key] for key in own}},
            {**self.arrays, **{key: arrays[key] for key in own if key in arrays}},
        )

    def begin(self) -> None:
        """Begin a batch, even if the one before was not completed."""
        self._roots.clear()
        self._filled.clear()

    def write(self, frame: TensorDictBase, step: int) -> None:
        """Copy the data of one step.

        Raises:
            SpecError: its entries or shapes differ from those of the first step.
        """
        views, values = self._step_views(step), self._values(frame)
        for target, source in zip(views, values, strict=True):
            if target.shape != source.shape:
                raise self._changed(frame)
        _copy(views, values)
        self.root_written(step)

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
            raise self._changed(frame)
        return [frame.get(key) for key in self._order]

    def write_values(self, step: int, carried: list[Any], root: TensorDictBase, following: list[torch.Tensor]) -> None:
        """Copy the data of one step whose root and ``next`` are not in one TensorDict.

        Args:
            step: its index.
            carried: the keys of ``carried`` whose values differ from what the step before wrote under ``next``.
            root: a plain TensorDict with the entries of the root; others must be private.
            following: the values of ``next_keys``.
        """
        views = self._step_views(step)
        n = len(self.carried)
        level = entries(root)
        own: list[Any] = [level.get(key) for key in self._own]
        for target, source in zip(views[n:], own, strict=False):
            if source is None or target.shape != source.shape:
                raise self._changed(root, following)
        if len(level) != len(own) + n and {key for key, _ in _leaves(root, self._declared)} != set(self.root_keys):
            raise self._changed(root, following)
        if not carried:
            _copy(views[n:], own + following)
            return
        self.root_written(step)
        at_root = [view for key, view in zip(self.carried, views, strict=False) if key in carried]
        _copy(views[n:] + at_root, own + following + [level[key] for key in self.carried if key in carried])

    def root_written(self, step: int) -> None:
        """Keep the carried root entries of a step, which the caller has written to the memory itself."""
        self._roots.append(step)

    def fill(self, values: dict[Any, torch.Tensor], first: int) -> None:
        """Set carried root entries to one value for all steps from ``first`` to the end of this batch.

        Args:
            values: keys of ``carried`` with values ``[*B, *S]``.
            first: 0, or 1 if step 0 has been written.
        """
        for key, value in values.items():
            target = self.tensors[key]
            target.narrow(self.dim, first, self.steps - first).copy_(value.unsqueeze(self.dim))
            self._filled.add(key)

    def _step_views(self, step: int) -> list[torch.Tensor]:
        first = step - step % self._window
        if first != self._first_view or not self._views:
            size = min(self._window, self.steps - first)
            columns = [self.tensors[key].narrow(self.dim, first, size).unbind(self.dim) for key in self._order]
            self._views, self._first_view = [list(row) for row in zip(*columns, strict=True)], first
        return self._views[step - first]

    def _changed(self, frame: TensorDictBase, following: list[torch.Tensor] | None = None) -> SpecError:
        if following is not None:
            frame = frame.copy()
            for key, value in zip(self.next_keys, following, strict=True):
                frame.set(key, value)
        keys = {key for key, _ in _leaves(frame, self._declared)}
        problems = [f"{key!r} is missing" for key in self._order if key not in keys]
        problems += [f"{key!r} is new" for key in sorted(keys - set(self._order), key=str)]
        for key, view in zip(self._order, self._step_views(0), strict=True):
            found = frame.get(key, None)
            if found is not None and found.shape != view.shape:
                problems.append(f"{key!r} had shape {tuple(view.shape)} and now has {tuple(found.shape)}")
        return SpecError(
            f"The data of a step differs from that of the first: {'; '.join(problems)}. Policies write the same "
            "entries in each step; what they read from the step before is there at a reset if a TensorDictPrimer "
            "puts it there."
        )

    def zeros(self) -> TensorDictBase:
        """Return zeros with the layout of a batch."""
        return self.td.clone().zero_()

    def finish(self, written: int | None = None) -> TensorDictBase:
        """Fill in the carried root entries, and return ``td``.

        Args:
            written: how many steps were written; the others become zeros.
        """
        dim, steps = self.dim, self.steps if written is None else written
        if len(self._roots) < steps:
            for key, source in self.carried.items():
                if key in self._filled:
                    continue
                target = self.tensors[key]
                at = torch.tensor(self._roots, dtype=torch.int64, device=target.device)
                kept = target.index_select(dim, at)
                target.narrow(dim, 1, steps - 1).copy_(self.tensors[source].narrow(dim, 0, steps - 1))
                target.index_copy_(dim, at, kept)
        if steps < self.steps:
            for tensor in self.tensors.values():
                tensor.narrow(dim, steps, self.steps - steps).zero_()
        return self.td


def _copy(targets: list[torch.Tensor], sources: list[torch.Tensor]) -> None:
    if _foreach_copy is not None:
        _foreach_copy(targets, sources)
    else:
        for target, source in zip(targets, sources, strict=True):
            target.copy_(source)


class FrameList:
    """Keeps frames with text, or of changing shapes, as a list, and stacks them, lazily if they differ in shape."""

    def __init__(self, example: TensorDictBase, steps: int, declared: DeclaredKeys) -> None:
        self.dim, self._steps, self._declared = example.batch_dims, steps, declared
        self._example = without_private(example, declared)
        self._frames: list[TensorDictBase] = []

    def begin(self) -> None:
        """Begin a batch, even if the one before was not completed."""
        self._frames = []

    def write(self, frame: TensorDictBase, step: int) -> None:
        """Keep the data of one step."""
        self._frames.append(without_private(frame, self._declared).copy())

    def zeros(self) -> TensorDictBase:
        """Return zeros with the layout of a batch whose steps are all like the first."""
        frame = self._example
        return frame.unsqueeze(-1).expand(*frame.batch_size, self._steps).clone().zero_()

    def finish(self, written: int | None = None) -> TensorDictBase:
        """Stack the frames.

        Args:
            written: how many steps were written; the missing ones of a batch that ended early are zeros, and None for
                text and the like.

        Raises:
            NotSupported: they have different entries.
        """
        frames, self._frames = self._frames, []
        if written is not None and written < self._steps:
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
