"""RowFrames: steps an environment on rows, and copies each step to memory of many steps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from tensordict import TensorDictBase

from steppe.envs.array.row_steps import RowSteps
from steppe.envs.array.rows import Arrays, Ended
from steppe.envs.data_types import Array, Key
from steppe.envs.rollout.policies import Policy, with_written
from steppe.envs.rollout.random_actions import CHUNK
from steppe.storage import copy_rows
from steppe.workers import InUse

__all__ = ["RowFrames", "TakeActions"]

#: Returns the actions of the next steps, ``{key: [k, *B, *shape]}`` with ``1 <= k <= at_most``.
TakeActions = Callable[[int], "dict[Key, torch.Tensor]"]

#: Roots are filled from ``next`` after this many bytes of observations, which are then still in the cache.
_NEAR = 256 * 1024


class RowFrames:
    """Steps an environment on rows, and copies each step to frames: the base of rollouts and of batches of a collector.

    The root of a step is the ``next`` of the step before, except where an episode begins. So roots are copied from the
    frames themselves, for many steps at once.

    Args:
        steps: steps the rows of the environment.
        name: the name of the environment, for errors.

    Attributes:
        size: batch size of the environment: empty, or ``(n,)``.
        in_use: the thread that steps the environment.
        part: index of the caller's data in an array of rows: all rows of a batch, or row 0.
        observed: keys of the observations.
        capacity: how many steps the frames have.
    """

    capacity: int

    def __init__(self, steps: RowSteps, name: str) -> None:
        self.steps, self.loop, self.rows = steps, steps.loop, steps.rows
        self.writer, self.layout = steps.writer, steps.layout
        self.size, self.part = steps.batch_size, steps.part
        self.in_use = self.writer.in_use or InUse(name)
        self.observed: list[Key] = [key for key, _, _ in self.layout.observations]
        row = sum(self.rows.root[key].nbytes for key in self.observed)
        self._stretch = max(1, min(CHUNK, _NEAR // max(row, 1)))
        #: Done entries that each step may change. Others are False in a root, because rows that ended are reset.
        self.changing_flags = self.layout.done_keys if self.layout.flags_every_step else ()

    def use(self, root: Arrays, following: Arrays, actions: Arrays) -> None:
        """Write frames to these arrays from now on.

        Args:
            root: arrays ``[T, *B, *shape]`` of the root by key.
            following: the same for ``next``.
            actions: the same for the actions that :meth:`with_blocks` takes. A root with an entry of that key, as a
                primer makes it, holds the action instead.
        """
        rows, part = self.rows, self.part
        written = [*(key for key, _, _ in self.layout.written), *self.changing_flags]
        #: For each entry that a step writes: its array in the frames and its array in the rows.
        self.copies = [(following[key], rows.next[key][part]) for key in written if key in following]
        self._flags = [(following[key], rows.next[key][part]) for key in self.layout.done_keys]
        #: For each entry that a root takes over from ``next`` of the step before: its arrays in the frames (root,
        #: next) and in the rows (root, next).
        self.roots = [
            (root[key], following[key], rows.root[key][part], rows.next[key][part])
            for key in (*self.observed, *self.changing_flags)
            if key in root and key not in actions
        ]
        self.actions = actions

    def begin(self, first: int) -> None:
        """Write the root of the first step from the rows."""
        for array, _, start, _ in self.roots:
            array[first] = start
        self._filled = first + 1

    def grow(self) -> None:
        """Get memory for more than ``capacity`` steps. A subclass that takes more steps defines it."""
        raise NotImplementedError

    def fill_roots(self, end: int) -> None:
        """Write the roots before step ``end`` that no reset has written: each is the ``next`` of the step before."""
        start = self._filled
        if end > start:
            for root, following, _, _ in self.roots:
                root[start:end] = following[start - 1 : end - 1]
            self._filled = end

    def write_end(self, t: int, ended: Ended) -> None:
        """Write the done entries of step ``t``, in which rows have ended."""
        for array, flag in self._flags:
            array[t] = flag

    def begin_episodes(self, t: int, ended: Ended, end: int) -> None:
        """Write the root of step ``t``, in which rows that were reset begin an episode, if it is before ``end``."""
        if t >= end:
            return
        self.fill_roots(t)
        began = [row for row, _, _ in ended]
        for array, _, start, following in self.roots:
            if self.size:
                array[t] = following
                copy_rows(array[t], start, began)
            else:
                array[t] = start
        self._filled = t + 1

    def next_root(self, t: int, root: TensorDictBase, ended: Ended) -> TensorDictBase:
        """Return the root of step ``t``. A subclass that calls a policy defines it.

        Args:
            t: the step.
            root: the root of the step before, with the action and all else that the policy has written.
            ended: the rows that ended in the step before, and have been reset.
        """
        raise NotImplementedError

    def keep_root(self, t: int, root: TensorDictBase) -> None:
        """Keep the root of step ``t``, which a policy has written to. A subclass that calls a policy defines it."""
        raise NotImplementedError

    def copy_root(self, level: dict[Any, Any], copied: Sequence[tuple[Key, Array]], ended: Ended) -> None:
        """Copy entries of the next root from the rows.

        Args:
            level: the entries of the next root, where the copies are put.
            copied: key and array of ``next`` in the rows.
            ended: the rows that ended, and have been reset.
        """
        if ended:
            first = self.steps.first_data(ended)
            level.update((key, first[key]) for key, _ in copied)
            return
        for key, following in copied:
            level[key] = _from_numpy(following.copy())

    def with_policy(
        self,
        act: Policy,
        root: TensorDictBase,
        first: int,
        end: int,
        *,
        goes_on: bool = False,
        until_done: bool = False,
        stopped: Callable[[], bool] | None = None,
    ) -> tuple[int, TensorDictBase, Ended]:
        """Step with a policy; see :meth:`with_blocks`.

        Args:
            act: the policy.
            root: the root of the first step.
            first, end, goes_on, until_done, stopped: as in :meth:`with_blocks`.

        Returns:
            The number of the last step plus one, its root, and the rows that ended in it.
        """
        advance, keep_root, next_root = self.steps.advance, self.keep_root, self.next_root
        t = first
        while True:
            root = with_written(root, act(root))
            ended = advance(root, reset=goes_on or not (until_done or t + 1 == end))
            keep_root(t, root)
            for array, written in self.copies:
                array[t] = written
            t += 1
            if ended:
                self.write_end(t - 1, ended)
            if t == end or (ended and until_done) or (stopped is not None and stopped()):
                return t, root, ended
            if t == self.capacity:
                self.grow()
            root = next_root(t, root, ended)

    def with_blocks(
        self,
        take: TakeActions,
        first: int,
        end: int,
        *,
        goes_on: bool = False,
        until_done: bool = False,
        stopped: Callable[[], bool] | None = None,
    ) -> tuple[int, Ended]:
        """Step with actions that are known in advance, many at a time.

        Args:
            take: returns the next actions.
            first: the first step to write.
            end: the number of the last step plus one.
            goes_on: rows that end in the last step are reset too, because more steps follow later.
            until_done: end with the first step in which a row ends.
            stopped: called after each step; True ends the steps there.

        Returns:
            The number of the last step plus one, and the rows that ended in it.
        """
        loop, layout, decode, batched = self.loop, self.layout, self.writer.decode, bool(self.size)
        copy_root_inputs = loop.copy_root_inputs if layout.root_inputs else None
        read = [(self.rows.root[key][self.part], key) for key in layout.action_keys] if layout.reads_root else []
        step = loop.step if until_done or not batched else loop.step_and_reset
        # Steps that may be stopped take one action at a time: all actions that were drawn must be used, or the data of
        # a seed would depend on where batches stop.
        at_once = CHUNK if stopped is None else 1
        t, ended = first, _NONE
        while t < end:
            block = {key: values.numpy() for key, values in take(min(at_once, end - t)).items()}
            begin, n = t, len(next(iter(block.values())))
            if t + n > self.capacity:
                self.grow()
            for key, values in block.items():
                self.actions[key][t : t + n] = values
            copies, stretch = self.copies, self._stretch
            # A batch decodes actions in each step, one environment those of all steps of a block at once.
            decoded: Sequence[Any] = range(n) if batched else decode(block)
            for start in range(0, n, stretch):
                for action in decoded[start : start + stretch]:
                    for row, key in read:
                        row[...] = block[key][t - begin]
                    if batched:
                        if t + 1 == end and not goes_on:
                            step = loop.step
                        ended = step(decode({key: values[action] for key, values in block.items()}))
                    else:
                        ended = step((action,))
                    for array, written in copies:
                        array[t] = written
                    t += 1
                    if copy_root_inputs is not None:
                        copy_root_inputs([row for row, _, _ in ended] if ended else ())
                    if ended:
                        self.write_end(t - 1, ended)
                        if until_done:
                            self.fill_roots(t)
                            return t, ended
                        if goes_on or t < end:
                            if not batched:  # episodes end seldom, and step_and_reset would cost each step 0.4 us
                                loop.reset((0,))
                            self.begin_episodes(t, ended, end)
                self.fill_roots(t)
            if stopped is not None and stopped():
                break
        return t, ended


_NONE: Ended = []
_from_numpy = torch.from_numpy
