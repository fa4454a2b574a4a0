"""Batches of steps, made out of an environment and what acts in it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from tensordict import TensorDictBase

from steppe.collectors.acting import Acting
from steppe.collectors.agent_steps import AgentSteps
from steppe.collectors.array_run import rows_of, run_rows
from steppe.collectors.batch_run import BatchRun
from steppe.collectors.marks import Marks
from steppe.collectors.trajectories import TrajectoryIds, row_ends
from steppe.collectors.writer import FrameList, FrameWriter, make_writer, public
from steppe.envs import DoneGroup, EnvBase, RandomActions
from steppe.errors import PolicyError
from steppe.specs import CPU, Composite, make_composite_from_td

__all__ = ["BatchMaker"]


class BatchMaker:
    """Makes batches ``[*B, T]``: each goes on where the one before stopped.

    Args:
        env: one environment, or a batch ``[*B]``.
        acting: the policy, or random actions.
        agent: what the policy needs beside the data of the environment; None for a plain one.
        groups: the levels of the data that have done entries, the root first.
        marks: what is done with the steps of a batch.
        steps: T.
        stopped: asked after each step whether the batch is to end there; None where nobody has a say.

    Attributes:
        steps: T.
        steps_of_batch: steps of the batch that was made last.
        ids: number the trajectories.
        episodes: how many have ended.
    """

    def __init__(
        self,
        env: EnvBase,
        acting: Acting,
        agent: AgentSteps | None,
        groups: list[DoneGroup],
        marks: Marks,
        *,
        steps: int,
        stopped: Callable[[], bool] | None,
    ) -> None:
        self.env, self._acting, self._agent, self._groups = env, acting, agent, groups
        self._marks, self._stopped = marks, stopped
        self.steps = self.steps_of_batch = steps
        self.ids = TrajectoryIds(env.batch_size)
        self.episodes = 0
        self._root: TensorDictBase | None = None
        self._first: tuple[TensorDictBase, TensorDictBase] | None = None
        self._fresh = True
        self._writer: FrameWriter | FrameList | None = None

    # -- where the next batch begins ------------------------------------------------------------------------------

    def forget_root(self) -> None:
        """Let the next batch begin with a reset, also where its first step has been taken."""
        self._root = self._first = None

    def forget_episodes(self, begun: int) -> None:
        """Let the next batch begin with a reset as after the construction.

        Args:
            begun: trajectories that have been numbered elsewhere.
        """
        self.ids.begun = begun
        self.ids.begin_all()
        self.forget_root()
        self._fresh = True

    def close(self) -> None:
        """Let go of all data."""
        self.forget_root()
        self._writer = None

    def reset(self, index: Any, kwargs: dict[str, Any]) -> list[int] | None:
        """Begin new episodes.

        Args:
            index: which rows; all where None.
            kwargs: given to ``env.reset``.

        Returns:
            The ids of the trajectories that end by it; None for all.
        """
        first, self._first = self._first, None
        if first is not None:
            self._root = first[1]
        if index is None or self._root is None:
            self._root = self._begin(kwargs)
            return None
        rows = torch.zeros(self.env.batch_size, dtype=torch.bool, device=CPU)
        rows[index] = True
        root = self._root.copy()
        for group in self._groups:
            shape = self.env.full_done_spec[group.key("done")].shape
            mask = rows.reshape(*rows.shape, *[1] * (len(shape) - rows.ndim)).expand(shape)
            root.set(group.key("_reset"), mask.clone().to(root.device))
        root = self.env.reset(root, **kwargs)
        self._root = root if self._agent is None else self._agent.begin(root, rows)
        return self.ids.begin(rows)

    def _begin(self, kwargs: dict[str, Any] | None = None) -> TensorDictBase:
        if not self._fresh:
            self.ids.begin_all()
        self._fresh = False
        root = self.env.reset(**(kwargs or {}))
        return root if self._agent is None else self._agent.begin(root)

    # -- batches --------------------------------------------------------------------------------------------------

    @torch.no_grad()
    def prepare(self, random: bool) -> Composite | None:
        """Take the first step of the first batch, unless that has been taken, and say what a batch holds.

        Args:
            random: take random actions.

        Returns:
            The spec of a whole batch; None where its data has no fixed place.
        """
        if self._writer is None:
            root = self._root if self._root is not None else self._begin()
            self._first = self._step(self._acting.in_batch(root, random), root, random)
            self._root = root
            self._writer = make_writer(self._first[0], self.steps, dynamic=self.env.has_dynamic_specs)
        if not isinstance(self._writer, FrameWriter):
            return None
        stored = self._marks.without_mirrored(self._writer.td.copy())
        return make_composite_from_td(self._example(stored), unsqueeze_null_shapes=False)

    @torch.no_grad()
    def collect(self, random: bool, *, anew: bool = False) -> TensorDictBase:
        """Make a batch.

        Args:
            random: take random actions, and zeros for what else the policy writes.
            anew: begin new episodes.
        """
        if anew and self._first is None:
            self._root = None
        root = self._root if self._root is not None else self._begin()
        # What interrupts the batch leaves the environment somewhere in it: the next one then begins anew.
        self._root = None
        self._root = self._run(root, random)
        assert self._writer is not None
        return self._yielded(self._writer.finish(self.steps_of_batch))

    def _run(self, root: TensorDictBase, random: bool) -> TensorDictBase:
        """Fill the writer with the steps of one batch, and return the root of the next."""
        step = 0
        first, self._first = self._first, None
        act = self._acting.in_batch(root, random)
        if self._writer is None:
            first = self._step(act, root, random)
            self._writer = make_writer(first[0], self.steps, dynamic=self.env.has_dynamic_specs)
        writer = self._writer
        writer.begin()
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
        """Take the steps without a TensorDict for each, where that gives the same data; None where it does not."""
        env = self.env
        if self._agent is not None or not isinstance(writer, FrameWriter):
            return None
        if (
            self._acting.policy is None
            and isinstance(act, RandomActions)
            and act.in_blocks
            and (rows := rows_of(env)) is not None
        ):
            return run_rows(rows, writer, act, root, step, self._stopped)
        if BatchRun.fits(env, writer):
            return BatchRun(env, writer).run(act, root, step, self._stopped)  # type: ignore[arg-type]
        return None

    def _step(
        self, act: Callable[[TensorDictBase], TensorDictBase], root: TensorDictBase, random: bool
    ) -> tuple[TensorDictBase, TensorDictBase]:
        if self._agent is not None:
            return self._agent.step(act, root, random)
        acted = act(root)
        if acted is not root:
            if not isinstance(acted, TensorDictBase):
                raise PolicyError(f"The policy must return a TensorDict, found {type(acted).__name__}.")
            root.update(acted)
        return self.env.step_and_maybe_reset(root)

    def _yielded(self, stored: TensorDictBase) -> TensorDictBase:
        """Number the trajectories of a batch, and make of it what the caller gets."""
        ends, steps = row_ends(stored.get("next"), self._groups), self.steps_of_batch
        self.episodes += int(ends.sum())
        ids = self.ids.advance(ends[..., :steps])
        if ids.shape[-1] < stored.batch_size[-1]:
            ids = torch.nn.functional.pad(ids, (0, self.steps - steps), value=-1)
        overwritten = isinstance(self._writer, FrameWriter)
        return self._marks.yielded(stored, ids, steps, self._acting.version, self._infos(), overwritten=overwritten)

    def _infos(self) -> Any:
        return None if self._agent is None else self._agent.infos

    def _example(self, batch: TensorDictBase) -> TensorDictBase:
        """Mark a batch that was not collected."""
        ids = torch.zeros(batch.batch_size, dtype=torch.int64, device=CPU)
        return self._marks.marked(batch, ids, self.steps_of_batch, self._acting.version, self._infos())

    @torch.no_grad()
    def fake(self) -> TensorDictBase:
        """Zeros in the place of a batch: same entries, shapes and dtypes. The policy is called once, on zeros."""
        frame = self.env.fake_tensordict()
        if self._agent is not None:
            frame = self._agent.fake(self._acting.once, frame.exclude("next"), frame.get("next"))
        elif self._acting.policy is not None:
            frame.update(self._acting.once(frame.exclude("next")))
        batch = public(frame).unsqueeze(-1).expand(*self.env.batch_size, self.steps).clone().zero_()
        self._marks.truncate(batch.get("next"))
        return self._example(self._marks.moved(self._marks.without_mirrored(batch)))
