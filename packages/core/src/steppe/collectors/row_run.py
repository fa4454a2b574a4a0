"""RowRun: steps of an environment with a row writer, copied from its rows to the frames of a batch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from tensordict import TensorDictBase

from steppe.collectors.writer import FrameWriter
from steppe.envs import EnvBase, RandomActions, RowFrames, row_steps_of, with_written
from steppe.specs import below_next
from steppe.storage import build_td, entries
from steppe.workers import exclusive

__all__ = ["RowRun"]

_from_numpy = torch.from_numpy


class RowRun(RowFrames):
    """Fills batches with rows, without a TensorDict for each step: only the policy gets one, of the root.

    Args:
        env: an environment for which :meth:`fits` holds, one or a batch ``(n,)``.
        frames: the memory of a batch, laid out for the data of this environment and the policy.
    """

    @staticmethod
    def fits(env: EnvBase, frames: FrameWriter) -> bool:
        """Whether the rows of the environment hold all data of a step that the frames need."""
        writer = None if env.is_closed or env.run_type_checks or env.allow_done_after_reset else env.row_writer
        if writer is None or not frames.flat or not frames.on_host or writer.layout.copied_to_next:
            return False
        layout = writer.layout
        done = list(layout.done_keys)
        # Private entries are not part of frames.
        roots = {key for key, _, _ in layout.observations if key in frames.tensors}
        following = {key for key, _, _ in layout.written if below_next(key) in frames.tensors}
        return (
            all(isinstance(key, str) for key, _, _ in layout.written)
            and set(frames.next_keys) == {below_next(key) for key in (*following, *done)}
            and {key for key in frames.root_keys if below_next(key) in frames.tensors} == {*roots, *done}
        )

    def __init__(self, env: EnvBase, frames: FrameWriter) -> None:
        self.steps = env.row_steps or row_steps_of(env.row_writer, env.batch_size)
        super().__init__(self.steps.loop, env.batch_size, type(env).__name__)
        self.frames, self.capacity, self.device = frames, frames.steps, env.device
        self.memory = frames.td  # the frame writer may give this memory away, and a new RowRun is needed then
        rows, part = self.rows, self.part
        # Rows that have ended are reset at once, so the done entries of a root are False, unless the environment writes
        # them in every step.
        done = [] if self.layout.flags_every_step else list(self.layout.done_keys)
        #: The done entries among the views of a step.
        self._done = [(name, frames.root_keys.index(name)) for name in done]
        self._moved = [(key, rows.next[key][part]) for key in (*self.observed, *self.changing_flags)]
        # Views with the dimension of time first.
        arrays = {key: np.moveaxis(array, frames.dim, 0) for key, array in frames.arrays.items()}
        following = {key[1]: arrays[key] for key in frames.next_keys}
        actions = {key: arrays[key] for key in self.layout.action_keys}
        self.use({key: arrays[key] for key in frames.root_keys}, following, actions)
        self._cleared = [arrays[key] for name in done for key in (name, below_next(name))]

    def _clear(self, first: int) -> None:
        """Set done entries to False from step ``first`` on: only steps in which rows end write them."""
        for array in self._cleared:
            array[first:] = False

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
        advance, write_root, copies = self.steps.advance, self.frames.write_root, self.copies
        step_views, done = self.frames.step_views, self._done
        self._clear(first)
        level: dict[Any, Any] = dict(root.items())
        for step in range(first, self.frames.steps):
            views = step_views(step)
            for flag, at in done:
                # In the memory of this step, because a policy may write them in place.
                level[flag] = views[at]
            root = build_td(level, self.size, self.device)
            root = with_written(root, act(root))
            ended = advance(root)
            write_root(step, root)
            for array, written in copies:
                array[step] = written
            level = dict(entries(root))
            if ended:
                self.write_end(step, ended)
                level.update(self.steps.first_data(ended))
            else:
                for name, after in self._moved:
                    level[name] = _from_numpy(after.copy())
            if stopped is not None and stopped():
                break
        return step + 1, build_td({**level, **self._cleared_flags()}, self.size, self.device)

    @exclusive("collecting a batch")
    def with_random_actions(
        self, actions: RandomActions, root: TensorDictBase, first: int, stopped: Callable[[], bool] | None = None
    ) -> tuple[int, TensorDictBase]:
        """Step the environment with random actions, sampled in blocks; see :meth:`with_policy`."""
        self._clear(first)
        for key in (*self.observed, *self.layout.done_keys):
            self.rows.root[key][self.part] = root.get(key).numpy()
        self.begin(first)
        step, ended = self.with_blocks(actions.take, first, self.frames.steps, goes_on=True, stopped=stopped)
        following_root = root.copy()
        first_data = self.steps.first_data(ended) if ended else {}
        for key, after in self._moved:
            following_root.set(key, first_data[key] if ended else _from_numpy(after.copy()))
        for key, value in self._cleared_flags().items():
            following_root.set(key, value)
        return step, following_root

    def _cleared_flags(self) -> dict[str, torch.Tensor]:
        """Return the done entries of the root of the next batch."""
        views = self.frames.step_views(0)
        return {name: torch.zeros_like(views[at]) for name, at in self._done}
