"""RowRun: steps of an environment with a row writer, copied from its rows to the frames of a batch."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from tensordict import TensorDictBase

from steppe.collectors.writer import FrameWriter
from steppe.envs import Ended, EnvBase, RandomActions, RowFrames
from steppe.specs import below_next
from steppe.storage import build_td, entries
from steppe.workers import exclusive

__all__ = ["RowRun"]

_Act = Callable[[TensorDictBase], TensorDictBase]


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
        super().__init__(env.row_run_steps, type(env).__name__)
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

    def next_root(self, t: int, root: TensorDictBase, ended: Ended) -> TensorDictBase:
        """Return copies of the data of step ``t``, because the memory of the frames is used again."""
        level = dict(entries(root))
        self.copy_root(level, self._moved, ended)
        views = self.frames.step_views(t)
        for flag, at in self._done:
            # In the memory of this step, because a policy may write them in place.
            level[flag] = views[at]
        return build_td(level, self.size, self.device)

    def keep_root(self, t: int, root: TensorDictBase) -> None:
        """Copy the root of step ``t`` to the frames."""
        self.frames.write_root(t, root)

    @exclusive("collecting a batch")
    def run(
        self, act: _Act, root: TensorDictBase, first: int, stopped: Callable[[], bool] | None = None
    ) -> tuple[int, TensorDictBase]:
        """Step the environment up to the end of the batch.

        Args:
            act: the policy, or random actions, which are drawn in blocks if possible.
            root: the root of the first step.
            first: the first step to write.
            stopped: called after each step; True ends the batch there.

        Returns:
            How many steps the batch has, and the root of the next one.
        """
        for array in self._cleared:  # only steps in which rows end write these
            array[first:] = False
        end = self.frames.steps
        if isinstance(act, RandomActions) and act.in_blocks:
            for key in (*self.observed, *self.layout.done_keys):
                self.rows.root[key][self.part] = root.get(key).numpy()
            self.begin(first)
            t, ended = self.with_blocks(act.take, first, end, goes_on=True, stopped=stopped)
        else:
            views = self.frames.step_views(first)
            level = {**dict(root.items()), **{flag: views[at] for flag, at in self._done}}
            root = build_td(level, self.size, self.device)
            t, root, ended = self.with_policy(act, root, first, end, goes_on=True, stopped=stopped)
        level = dict(root.items())
        self.copy_root(level, self._moved, ended)
        level.update({flag: torch.zeros_like(self.frames.step_views(0)[at]) for flag, at in self._done})
        return t, build_td(level, self.size, self.device)
