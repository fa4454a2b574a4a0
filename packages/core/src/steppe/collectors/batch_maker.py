"""BatchMaker: step an environment with a policy, and collect the steps in batches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from tensordict import TensorDictBase

from steppe.collectors.acting import Acting
from steppe.collectors.agent_hook import AgentStepper
from steppe.collectors.batch_metadata import BatchMetadata
from steppe.collectors.row_run import RowRun
from steppe.collectors.trajectories import TrajectoryIds
from steppe.collectors.writer import FrameList, FrameWriter, Key, make_writer
from steppe.envs import EnvBase, RandomActions, declared_keys, rows_ended, with_written
from steppe.specs import CPU, Composite, make_composite_from_td

__all__ = ["BatchMaker"]


class BatchMaker:
    """Makes batches ``[*B, T]``, each of which continues where the one before stopped.

    Args:
        env: one environment, or a batch ``[*B]``.
        acting: the policy, or random actions.
        agent: steps a policy that declares infos or a recurrent state; None for an ordinary policy.
        metadata: adds metadata to the steps of a batch.
        steps: T.
        stopped: called after each step; True ends the batch there. None: batches have T steps.

    Attributes:
        steps: T.
        steps_of_batch: the number of steps of the last batch.
        ids: the numbers of the trajectories.
    """

    def __init__(
        self,
        env: EnvBase,
        acting: Acting,
        agent: AgentStepper | None,
        metadata: BatchMetadata,
        *,
        steps: int,
        stopped: Callable[[], bool] | None,
    ) -> None:
        self.env, self._acting, self._agent = env, acting, agent
        self._metadata, self._stopped = metadata, stopped
        self.steps = self.steps_of_batch = steps
        self.ids = TrajectoryIds(env.batch_size)
        self._root: TensorDictBase | None = None
        self._first: tuple[TensorDictBase, TensorDictBase] | None = None
        self._writer: FrameWriter | FrameList | None = None
        self._row_run: RowRun | None = None
        self._random = False  # whether the writer is for batches of random actions

    # -- the root of the next batch ------------------------------------------------------------------------------

    @property
    def goes_on(self) -> bool:
        """Whether the next batch continues episodes."""
        return self._root is not None or self._first is not None

    def forget_root(self) -> None:
        """Let the next batch begin with a reset, even if its first step has been taken."""
        self._root = self._first = None

    def close(self) -> None:
        """Release all data."""
        self.forget_root()
        self._writer = self._row_run = None

    def reset(self, kwargs: dict[str, Any]) -> None:
        """Begin new episodes in all rows.

        Args:
            kwargs: arguments of ``env.reset``.
        """
        self.forget_root()  # if the reset is interrupted, the state of the rows is unknown: the next batch resets
        self._root = self._begin(kwargs)

    def _begin(self, kwargs: dict[str, Any] | None = None) -> TensorDictBase:
        self.ids.begin()
        root = self.env.reset(**(kwargs or {}))
        return root if self._agent is None else self._agent.begin(root)

    # -- batches --------------------------------------------------------------------------------------------------

    @torch.no_grad()
    def prepare(self) -> Composite | None:
        """Let the policy take the first step of the next batch, unless the layout of its batches is known.

        Returns:
            The spec of a whole batch; None if its data has no fixed layout.
        """
        if self._needs_first(False):
            self._take_first(self._root if self._root is not None else self._begin(), False)
        if not isinstance(self._writer, FrameWriter):
            return None
        return make_composite_from_td(self._example(self._writer.td.copy()), unsqueeze_null_shapes=False)

    def keep_batches_in(self, tensors: dict[Key, torch.Tensor], arrays: dict[Key, np.ndarray]) -> None:
        """Write the batches like the next one to memory that another process reads; see ``FrameWriter.move_to``."""
        if isinstance(self._writer, FrameWriter):
            self._writer.move_to(tensors, arrays)
            self._row_run = None

    @property
    def holds_first_step(self) -> bool:
        """Whether the first step of the next batch has been taken."""
        return self._first is not None

    def _needs_first(self, random: bool) -> bool:
        """Whether the layout of a batch of random actions, or of one of the policy, is still unknown."""
        return self._writer is None or (self._first is None and random is not self._random)

    def _take_first(self, root: TensorDictBase, random: bool) -> None:
        """Take the first step of a batch, and allocate the memory of batches with its layout.

        This is the first call of the policy if no batch has its actions yet.
        """
        act = self._acting.in_batch(random)
        if not isinstance(act, RandomActions):
            act = self._acting.at_first(act)
        self._root = None  # as in ``collect``
        first = self._step(act, root, random)
        declared = declared_keys(self.env, self._acting.policy)
        writer = make_writer(first[0], self.steps, declared=declared, dynamic=self.env.has_dynamic_specs)
        self._writer, self._random = writer, random
        self._root, self._first = root, first

    @torch.no_grad()
    def collect(self, random: bool, *, anew: bool = False) -> TensorDictBase:
        """Make a batch.

        Args:
            random: take random actions without calling the policy; the batch lacks what the policy writes. If
                :meth:`prepare` has taken the first step, that decides for its batch.
            anew: begin new episodes.
        """
        if anew and self._first is None:
            self._root = None
        root = self._root if self._root is not None else self._begin()
        # An interrupted batch leaves the environment in an unknown state: the next batch then begins with a reset.
        self._root = None
        following = self._run(root, random)
        assert self._writer is not None
        batch = self._yielded(self._writer.finish(self.steps_of_batch))
        self._root = following
        return batch

    def _run(self, root: TensorDictBase, random: bool) -> TensorDictBase:
        """Write the steps of one batch, and return the root of the next one."""
        step = 0
        if self._needs_first(random):
            self._take_first(root, random)
            self._root = None
        first, self._first = self._first, None
        random = self._random
        act = self._acting.in_batch(random)
        writer = self._writer
        assert writer is not None
        if first is not None:
            frame, root = first
            writer.write(frame, 0)
            step = 1
        stopped = self._stopped
        if step < self.steps and not (stopped is not None and step and stopped()):
            fast = self._fast(writer, act, root, step)
            if fast is not None:
                step, root = fast
            else:
                while step < self.steps:
                    frame, root = self._step(act, root, random)
                    writer.write(frame, step)
                    step += 1
                    if stopped is not None and stopped():
                        break
        self.steps_of_batch = step
        return root

    def _fast(
        self,
        writer: FrameWriter | FrameList,
        act: Callable[[TensorDictBase], TensorDictBase],
        root: TensorDictBase,
        step: int,
    ) -> tuple[int, TensorDictBase] | None:
        """Take the steps on rows, without a TensorDict for each; None if the data does not allow that."""
        if self._agent is not None or not isinstance(writer, FrameWriter):
            return None
        run = self._row_run
        if run is None or run.memory is not writer.td or run.writer is not self.env.row_writer:
            run = self._row_run = RowRun(self.env, writer) if RowRun.fits(self.env, writer) else None
        if run is None:
            return None
        return run.run(act, root, step, self._stopped)

    def _step(
        self, act: Callable[[TensorDictBase], TensorDictBase], root: TensorDictBase, random: bool
    ) -> tuple[TensorDictBase, TensorDictBase]:
        if self._agent is not None:
            return self._agent.step(act, root, random)
        return self.env.step_and_maybe_reset(with_written(root, act(root)))

    def _yielded(self, stored: TensorDictBase) -> TensorDictBase:
        """Number the trajectories of a batch, and return the batch that the caller gets."""
        ends, steps = rows_ended(stored.get("next"), self.env.done_groups), self.steps_of_batch
        ids = self.ids.advance(ends[..., :steps])
        if ids.shape[-1] < stored.batch_size[-1]:
            ids = torch.nn.functional.pad(ids, (0, self.steps - steps), value=-1)
        assert self._writer is not None
        release = self._writer.released
        return self._metadata.yielded(stored, ids, steps, self._acting.version, self._infos(), release=release)

    def _infos(self) -> Any:
        return None if self._agent is None else self._agent.infos

    def _example(self, stored: TensorDictBase) -> TensorDictBase:
        """Return stored steps, whose values do not matter, in the layout of the batches that the collector yields."""
        ids = torch.zeros(stored.batch_size, dtype=torch.int64, device=CPU)
        version, infos = self._acting.version, self._infos()
        return self._metadata.yielded(stored, ids, self.steps, version, infos, release=lambda batch: batch)
