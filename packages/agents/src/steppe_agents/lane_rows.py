"""LaneRows: step the lanes of a segment through the row writer of the environment."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from tensordict import TensorDictBase

from steppe.envs import Ended, RandomActions, RowFrames, no_row_frames_reason
from steppe.errors import NotSupported
from steppe.specs import CPU, below_next
from steppe.storage import build_td
from steppe.workers import InUse, exclusive
from steppe_agents.lane_policy import LanePolicy
from steppe_agents.running_row import RunningRow
from steppe_agents.slot_writer import SlotWriter

if TYPE_CHECKING:
    from steppe_agents.lanes import Lanes

__all__ = ["LaneRows"]

_NO_LIMIT = 2**62


class LaneRows:
    """Step the lanes of a segment for many steps, without TensorDicts in between.

    ``RowFrames`` steps the environment and writes its entries to the current block of slots. ``LanePolicy``
    calls the policy and writes its entries to the same block. This object begins and ends rows.

    Args:
        lanes: the lanes, which have the state of the segment between two runs.
    """

    def __init__(self, lanes: Lanes) -> None:
        self._lanes, self._env = lanes, lanes.env
        self._has_batch = bool(lanes.env.batch_dims)
        self._frames: RowFrames | None = None
        #: The block, and the position there, at which the first frame of ``_frames`` is.
        self._frames_at: tuple[int, int] = (-1, 0)
        self._version = -1
        self._policy = LanePolicy(lanes)
        self._writer: SlotWriter
        self.in_use: InUse
        #: The lanes that have reached ``max_steps`` in the last step.
        self._truncated: list[int] = []
        #: The values that resets pass to environments: name and numbers of all rows of the segment.
        self._env_infos: list[tuple[str, Any]] | None = None

    def problem(self, root: TensorDictBase) -> str | None:
        """Return why a segment cannot be stepped through rows, or None if it can.

        Args:
            root: the root of the next step, of the active lanes.
        """
        env, act = self._env, self._lanes.act
        if isinstance(act, RandomActions) and not act.in_blocks:
            return "random actions are drawn from the data of each step."
        if not isinstance(self._lanes.store, SlotWriter):
            return "the data has no fixed layout."
        if self._lanes.history is not None:
            return "the agent reads the last steps as TensorDicts."
        if self._lanes.resets_whole:
            return "the environments of the batch are reset together."
        if "done" not in env.done_keys:
            return "its agents end by themselves, and a row begins with a reset of all of them."
        start = build_td({}, env.batch_size)
        problem = no_row_frames_reason(env, start, acts=True)
        if problem is not None:
            return problem
        layout = env.row_run_steps.layout
        known = {key for key, _, _ in layout.observations} | set(layout.done_keys)
        missing = [key for key in (*env.observation_keys, *env.state_keys) if key not in known]
        return f"the entries {missing} have no fixed layout." if missing else None

    # -- one run --------------------------------------------------------------------------------------------------

    def run(self, stopped: Callable[[], bool]) -> None:
        """Step the active lanes until the segment ends, the current block is full, or ``stopped`` returns True.

        Args:
            stopped: called after each step.
        """
        lanes = self._lanes
        assert isinstance(lanes.store, SlotWriter)
        writer = self._writer = lanes.store
        root = self._begin()
        frames = self._frames_of(writer)
        self.in_use = frames.in_use
        end = frames.taken + min(writer.slots.length - writer.position, self._slice_end - self._steps)
        self._finish(self._run_to(end, frames, root, stopped))

    @exclusive("rollout")
    def _run_to(self, end: int, frames: RowFrames, root: TensorDictBase, stopped: Callable[[], bool]) -> TensorDictBase:
        """Step the active lanes until ``frames`` hold ``end`` steps, no lane is active, or ``stopped`` returns True.

        Returns the root of the step that follows, of all lanes.
        """
        writer, act, step = self._writer, self._policy.act, frames.steps.advance
        root = frames.begin(root)
        while True:
            root = act(root)
            are_reset = self._resets_in_step
            ended = step(root, reset=are_reset) if self._at is None else self._step_some(frames, root)
            self._steps += 1
            if self._steps >= self._next_limit:
                ended = self._truncate(ended)
            frames.keep(ended)
            writer.position += 1
            if ended:
                self._end(ended, are_reset=are_reset)
            if frames.taken == end or not self._active or stopped():
                return frames.last_root(None, ended)
            root = frames.next_root(None, ended)

    def _step_some(self, frames: RowFrames, root: TensorDictBase) -> Ended:
        """Step the active lanes while other lanes are idle; return the lanes whose episode has ended."""
        lanes, steps = self._lanes, frames.steps
        if not lanes.steps_whole:
            try:
                return steps.advance(root, at=self._at)
            except NotSupported:
                lanes.steps_whole = True
        active = set(self._active)
        return [row for row in steps.advance(root, reset=False) if row[0] in active]

    def _frames_of(self, writer: SlotWriter) -> RowFrames:
        """Return frames that write to the current block, from its current position on."""
        frames, env = self._frames, self._env
        if frames is None or self._version != env.specs_version:
            frames = self._frames = RowFrames(env, writer.slots.length, self._lanes.declared, take=None)
            self._version, self._frames_at = env.specs_version, (-1, 0)
        block, begun = self._frames_at
        if block != writer.blocks_begun or begun + frames.taken != writer.position:
            self._frames_at = writer.blocks_begun, writer.position
            frames.forget()
            layout = frames.layout
            own: list[Any] = [key for key, _, _ in layout.observations] + list(layout.done_keys)
            own += [below_next(key) for key in (*(key for key, _, _ in layout.written), *layout.done_keys)]
            memory = {key: writer.tensors[key][:, writer.position :] for key in own if key in writer.tensors}
            frames.keep_in(memory if self._has_batch else {key: tensor[0] for key, tensor in memory.items()})
            self._policy.write_to(writer, set(memory))
            self._flags = [
                writer.tensors[key] for name in ("truncated", "done") if (key := below_next(name)) in writer.tensors
            ]
        return frames

    def _begin(self) -> TensorDictBase:
        """Take over the state of the segment, and return the root of all lanes."""
        lanes = self._lanes
        root = lanes.next_root
        assert root is not None
        n = lanes.n
        self._rows: list[RunningRow | None] = [None] * n
        for lane, row in zip(lanes.active, lanes.rows, strict=True):
            self._rows[lane] = row
        self._set_active(list(lanes.active))
        if len(lanes.active) < n:  # idle lanes repeat the data of another one, which nothing reads
            spread = torch.zeros(n, dtype=torch.int64, device=CPU)
            spread[torch.tensor(lanes.active, device=CPU)] = torch.arange(len(lanes.active), device=CPU)
            root = root[spread]
        places = list(range(n))
        if lanes.n_steps is None:
            places = [0 if row is None else row.place for row in self._rows]
        self._policy.begin(root, places)
        self._steps, self._truncated = lanes.steps, []
        self._slice_end = _NO_LIMIT if lanes.n_steps is None else lanes.rows[0].start + lanes.n_steps
        limit = lanes.max_steps
        self._limits = np.full(n, _NO_LIMIT) if limit is None else lanes.episode_begun + limit
        self._next_limit = 0 if limit is not None else _NO_LIMIT
        self._note_limit()
        env_infos = lanes.env_infos
        # A batch over workers may reset in the step only with the infos that its rows were last given.
        self._may_reset_in_step = env_infos is None and limit is None
        self._note_resets()
        self._env_infos = None if env_infos is None else [(str(key), value.numpy()) for key, value in env_infos.items()]
        env_root = root.select(*self._env.observation_keys, *self._env.done_keys)
        return env_root if self._has_batch else env_root[0]

    def _set_active(self, active: list[int]) -> None:
        self._active = active
        self._at = None if len(active) == self._lanes.n else active
        self._policy.set_active(active)

    def _note_resets(self) -> None:
        """Note whether lanes are reset in the step, in the same round trip: each of them has a next row."""
        lanes, may_reset = self._lanes, self._may_reset_in_step and self._at is None
        self._resets_in_step = may_reset and (lanes.n_waiting >= lanes.n or lanes.restarts)

    def _note_limit(self) -> None:
        """Note the number of steps at which the next row reaches ``max_steps``."""
        if self._next_limit != _NO_LIMIT and self._active:
            self._next_limit = int(self._limits[self._active].min())

    def _finish(self, after: TensorDictBase) -> None:
        """Give the state of the segment back.

        Args:
            after: the root of the next step, of all lanes.
        """
        lanes, active = self._lanes, self._active
        slice_over = self._steps >= self._slice_end
        rows = [row for lane in active if (row := self._rows[lane]) is not None]
        if slice_over:
            lanes.end_rows(rows, alive=True)
        self._writer.make_room([] if slice_over else rows)
        root = None
        if active:
            env_root = after if self._has_batch else after.unsqueeze(0)
            root = env_root.select(*self._env.observation_keys, *self._env.done_keys)
            root = self._policy.add_entries(root)
            if len(active) < lanes.n:
                root = root[torch.tensor(active, dtype=torch.int64, device=CPU)]
        lanes.steps, lanes.active, lanes.next_root = self._steps, active, root
        lanes.rows = rows
        lanes.after_rows(slice_over=slice_over)

    # -- ends of rows ---------------------------------------------------------------------------------------------

    def _truncate(self, ended: Ended) -> Ended:
        """Truncate lanes that have reached ``max_steps``; return all lanes whose row has ended."""
        known = {lane for lane, _, _ in ended}
        over = [lane for lane in self._active if self._limits[lane] <= self._steps and lane not in known]
        self._truncated = over
        return sorted([*ended, *((lane, False, True) for lane in over)])

    def _end(self, ended: Ended, *, are_reset: bool) -> None:
        """End the rows of some lanes, whose last step is in the block, and begin waiting rows there.

        Args:
            ended: the lanes.
            are_reset: whether their environments have begun an episode.
        """
        lanes, writer, rows = self._lanes, self._writer, self._rows
        if self._truncated:
            for flags in self._flags:
                flags[self._truncated, writer.position - 1] = True
            self._truncated = []
        free = [lane for lane, _, _ in ended]
        if lanes.restarts:
            for lane in free:
                lanes.number(lane, self._steps)
            self._reset(free, free, are_reset=are_reset)
            self._note_limit()
            return
        for lane in free:
            row = rows[lane]
            assert row is not None
            writer.end(row, alive=False)
            rows[lane] = None
        lanes.finished += len(free)
        entered, places = lanes.next_places(free)
        if places:
            try:
                self._reset(entered, places, are_reset=are_reset)
            except NotSupported:  # these rows wait until all lanes are idle, and begin together
                lanes.resets_whole = True
                lanes.put_back(places)
                entered = places = []
            for lane, place in zip(entered, places, strict=True):
                lanes.number(lane, self._steps)
                rows[lane] = lanes.new_row(place, lane, self._steps, writer.position)
        if len(entered) < len(free):
            self._set_active([lane for lane in self._active if rows[lane] is not None])
        self._note_resets()
        self._note_limit()

    def _reset(self, at: list[int], places: list[int], *, are_reset: bool) -> None:
        """Begin episodes in some lanes, whose infos are at some places."""
        infos = self._env_infos
        assert self._frames is not None
        if infos is not None:
            self._frames.loop.reset(at, [{name: each[place].tolist() for name, each in infos} for place in places])
        elif not are_reset:
            self._frames.loop.reset(at, [None] * len(at))
        self._policy.begin_rows(at, places)
        if self._next_limit != _NO_LIMIT:
            self._limits[at] = self._steps + (self._lanes.max_steps or 0)
