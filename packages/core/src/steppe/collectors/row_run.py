"""RowRun: steps of an environment with a row writer, copied from its rows to the frames of a batch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from tensordict import TensorDictBase

from steppe.collectors.writer import FrameWriter
from steppe.envs import EnvBase, RandomActions, row_steps_of
from steppe.errors import PolicyError
from steppe.specs import below_next
from steppe.storage import build_td, entries
from steppe.workers import InUse, exclusive

__all__ = ["RowRun"]

_from_numpy = torch.from_numpy


class RowRun:
    """Fills batches with rows, without a TensorDict for each step: only the policy gets one, of the root.

    Args:
        env: an environment for which :meth:`fits` holds, one or a batch ``(n,)``.
        frames: the memory of a batch, laid out for the data of this environment and the policy.
    """

    @staticmethod
    def fits(env: EnvBase, frames: FrameWriter) -> bool:
        """Whether the rows of the environment hold all data of a step that the frames need."""
        writer = None if env.is_closed or env.run_type_checks or env.allow_done_after_reset else env.row_writer
        if writer is None or not frames.flat or not frames.on_host or writer.layout.handed_on:
            return False
        layout = writer.layout
        done = list(layout.done_keys)
        # Private entries are not part of frames.
        roots = {key for key, _, _ in layout.observations if key in frames.tensors}
        following = {key for key, _, _ in layout.written if below_next(key) in frames.tensors}
        return (
            all(isinstance(key, str) for key, _, _ in layout.written)
            and set(frames.next_keys) == {below_next(key) for key in (*following, *done)}
            and set(frames.carried) == {*roots, *done}
        )

    def __init__(self, env: EnvBase, frames: FrameWriter) -> None:
        self.writer, self.frames = env.row_writer, frames
        self.steps = env.row_steps or row_steps_of(self.writer, env.batch_size)
        self.in_use = self.writer.in_use or InUse(type(env).__name__)
        rows, layout, part = self.steps.rows, self.writer.layout, self.steps.part
        self.size, self.device = env.batch_size, env.device
        observed = [key for key, _, _ in layout.observations]
        self.done = list(layout.done_keys)
        self.following = [_from_numpy(rows.next[key[1]][part]) for key in frames.next_keys]
        # Rows that have ended are reset at once, so the done entries of a root are False, unless the environment writes
        # them in every step.
        moved = [*observed, *(self.done if layout.flags_every_step else ())]
        self.columns = [(key, rows.root[key][part], rows.next[key][part]) for key in moved]
        false = {name: torch.zeros_like(_from_numpy(rows.next[name][part])) for name in self.done}
        self.false = {} if layout.flags_every_step else false
        # Views with the dimension of time first.
        arrays = {key: np.moveaxis(array, frames.dim, 0) for key, array in frames.arrays.items()}
        written = [*(key for key, _, _ in layout.written), *(self.done if layout.flags_every_step else ())]
        self.copies = [(arrays[below_next(key)], rows.next[key][part]) for key in written if below_next(key) in arrays]
        self.flags = [(arrays[below_next(key)], rows.next[key][part]) for key in self.done]
        self.roots = [(arrays[key], *arrays_of) for key, *arrays_of in self.columns if key in arrays]
        self.known_false = [(arrays[key], arrays[below_next(key)]) for key in self.false]
        self.actions = {key: frames.tensors[key].movedim(frames.dim, 0) for key in layout.action_keys}

    @exclusive("collecting a batch")
    def with_policy(
        self,
        act: Callable[[TensorDictBase], TensorDictBase],
        root: TensorDictBase,
        first: int,
        stopped: Callable[[], bool] | None = None,
    ) -> tuple[int, TensorDictBase]:
        """Step the environment with a policy up to the end of the batch.

        Args:
            act: the policy.
            root: the root of the first step.
            first: the first step to write.
            stopped: called after each step; True ends the batch there.

        Returns:
            How many steps the batch has, and the root of the next one.
        """
        advance, frames, following, columns = self.steps.advance, self.frames, self.following, self.columns
        names = [key for key in frames.carried if key not in self.false]
        frames.fill(self.false, first)
        level: dict[str, Any] = dict(root.items())
        fresh = True
        for step in range(first, frames.steps):
            level.update(self.false)
            root = build_td(level, self.size, self.device)
            carried = [level[name] for name in names]
            acted = act(root)
            if acted is not root:
                if not isinstance(acted, TensorDictBase):
                    raise PolicyError(f"The policy must return a TensorDict, found {type(acted).__name__}.")
                root.update(acted)
            level = entries(root)
            ended = advance(root)
            for name, value in zip(names, carried, strict=True):
                fresh = fresh or level[name] is not value
            frames.write_values(step, names if fresh else [], root, following)
            fresh = bool(ended)
            level = dict(level)
            if ended:
                level.update(self.steps.first_data(ended))
            else:
                for name, _, after in columns:
                    level[name] = _from_numpy(after.copy())
            if stopped is not None and stopped():
                break
        return step + 1, build_td({**level, **self.false}, self.size, self.device)

    @exclusive("collecting a batch")
    def with_random_actions(
        self, actions: RandomActions, root: TensorDictBase, first: int, stopped: Callable[[], bool] | None = None
    ) -> tuple[int, TensorDictBase]:
        """Step the environment with random actions, sampled in blocks; see :meth:`with_policy`."""
        frames, steps, layout, rows = self.frames, self.frames.steps, self.writer.layout, self.steps.rows
        batched, part = bool(self.size), self.steps.part
        for at_root, following in self.known_false:
            following[first:] = False
            at_root[first:] = False
        for key, row, _ in self.columns:
            row[...] = root.get(key).numpy()
        for key in self.false:
            rows.root[key][part] = root.get(key).numpy()
        for array, row, _ in self.roots:
            array[first] = row
        frames.root_written(first)
        loop = self.steps.loop
        carry = loop.carry if layout.carried else None
        read = [(rows.root[key][part], key) for key in layout.action_keys] if layout.reads_root else []
        copies, decode, step_and_reset = self.copies, self.writer.decode, loop.step_and_reset
        step, began, at_once = first, [], steps if stopped is None else 1
        while step < steps:
            # A batch that may be stopped samples one action at a time: all sampled actions must be used, or the
            # data of a seed would depend on where batches stop.
            block = actions.take(min(steps - step, at_once))
            for key, values in block.items():
                self.actions[key][step : step + len(values)] = values
            given = {key: values.numpy() for key, values in block.items()}
            begin, end = step, step + len(next(iter(given.values())))
            natives = [] if batched else decode(given)
            for step in range(begin, end):
                for row, key in read:
                    row[...] = given[key][step - begin]
                if batched:
                    ended = step_and_reset(decode({key: values[step - begin] for key, values in given.items()}))
                else:
                    ended = step_and_reset((natives[step - begin],))
                for array, row in copies:
                    array[step] = row
                began = [row for row, _, _ in ended]
                if ended:
                    for array, row in self.flags:
                        array[step] = row
                    if step + 1 < steps:
                        self._write_roots(step + 1, began)
                if carry is not None:
                    carry(began)
            step = end
            if stopped is not None and stopped():
                break
        following_root = root.copy()
        first_data = self.steps.first_data(ended) if began else {}
        for key, _, after in self.columns:
            following_root.set(key, first_data[key] if began else _from_numpy(after.copy()))
        for key, value in self.false.items():
            following_root.set(key, value.clone())
        return step, following_root

    def _write_roots(self, step: int, began: list[int]) -> None:
        """Write the root of a step at whose beginning some rows begin an episode."""
        for array, start, after in self.roots:
            if self.size:
                array[step] = after
                array[step][began] = start[began]
            else:
                array[step] = start
        self.frames.root_written(step)
