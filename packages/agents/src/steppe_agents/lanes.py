"""Lanes: run rows of requests in the environments of one process.

A lane is one environment (a row of the batch of environments) with the agent's state for it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from tensordict import TensorDict, TensorDictBase
from tensordict import cat as cat_tds
from tensordict import stack as stack_tds

from steppe.envs import EnvBase, declared_keys
from steppe.errors import NotSupported, SpecError
from steppe.specs import CPU
from steppe_agents.agent_state import AgentState
from steppe_agents.agent_view import AgentView
from steppe_agents.frame_store import FrameStore
from steppe_agents.history import History
from steppe_agents.lane_rows import LaneRows
from steppe_agents.lane_tds import LaneStep, LaneTds
from steppe_agents.running_row import RunningRow
from steppe_agents.segment import Segment
from steppe_agents.slot_writer import SlotWriter
from steppe_agents.slots import Columns
from steppe_agents.trajectories import Trajectories

__all__ = ["Lanes"]


class Lanes:
    """Run the rows of a segment.

    A lane whose row has ended takes the next row; idle lanes are not stepped. The first step of a segment is a step on
    TensorDicts, which shows what the policy writes; see :class:`LaneTds`. The others go through the row writer of the
    environment if it has one; see :class:`LaneRows`.

    Args:
        env: one environment, or a batch of one dimension.
        act: calls the policy, or draws random actions.
        policy: the policy that ``act`` calls; None for random actions.
        max_steps: truncate a row after this many steps.
        auto_reset: in a slice, begin a new episode in the same row at the end of an episode; False ends the row.
        store_agent_state: store the agent's state of the ``"first"`` step of a row, of ``"all"`` steps, or ``"none"``.
        compact: call the policy with the rows of active lanes. False calls it with the rows of all lanes;
            ``("collector", "mask")`` marks the active ones.
        name: name of the collector, for errors.
        trusted: do not convert errors of the policy's first call to PolicyError.
        writer_of: returns slots for the data; None keeps it in a FrameStore until ``take``.

    Attributes:
        live: lanes that can continue in the next slice.
        active, rows: the lanes that run, and the row that each of them runs.
        next_root: the root of their next step ``[k]``, with infos and state; None if no lane runs.
        steps: number of steps that lanes have taken; all active lanes step together.
        n_steps: the length of the slice; None if the segment is no slice.
        finished: number of rows of the segment that have ended.
        store: stores the steps.
        episode_of: for each lane, the number of its episode.
        episode_begun: for each lane, the number of steps of the lanes at which its episode began.
        first_lane: the number of the first lane of this process, counted over all workers.
        worker, n_workers: the index of this worker, and the number of workers. Worker w of n numbers its episodes
            w, w + n, w + 2 n, so that no two workers use the same number.
        steps_whole, resets_whole: whether the batch has refused to step, or to reset, some of its rows.
    """

    worker, n_workers = 0, 1

    def __init__(
        self,
        env: EnvBase,
        act: Callable[[TensorDictBase], TensorDictBase],
        policy: object,
        *,
        max_steps: int | None = None,
        auto_reset: bool = False,
        store_agent_state: str = "first",
        compact: bool = True,
        name: str = "Collector",
        trusted: bool = False,
        writer_of: Callable[[Columns], SlotWriter] | None = None,
    ) -> None:
        if env.batch_dims > 1:
            raise NotSupported(f"Requests need a batch of one dimension, but this one has {tuple(env.batch_size)}.")
        if store_agent_state not in ("first", "all", "none"):
            raise SpecError(f"store_agent_state must be 'first', 'all' or 'none', found {store_agent_state!r}.")
        self.env, self.act, self.policy = env, act, policy
        self.agent_state = AgentState(policy)
        steps = AgentView(policy).history
        self.history = History(env, steps) if steps else None
        self.max_steps, self.auto_reset, self.store_agent_state = max_steps, auto_reset, store_agent_state
        self.n = env.batch_size[0] if env.batch_dims else 1
        self.episodes = self.steps = 0
        self.declared = declared_keys(env, policy)
        self.compact = compact
        self.writer_of = writer_of
        self.store: FrameStore | SlotWriter = FrameStore()
        self.first_lane = 0
        self._tds, self._lane_rows = LaneTds(self, name=name, trusted=trusted), LaneRows(self)
        self.live: list[int] = []
        self._root: TensorDictBase | None = None
        self.episode_of = np.zeros(self.n, np.int64)
        self.episode_begun = np.zeros(self.n, np.int64)
        self._info_of: TensorDict | None = None
        self._env_info_of: TensorDict | None = None
        self._first_step: LaneStep | None = None
        self.steps_whole = self.resets_whole = False
        self._segment: Segment
        self.active: list[int]
        self.rows: list[RunningRow]
        self._waiting: deque[int]
        self.next_root: TensorDictBase | None
        self.n_steps: int | None
        self._finished: list[tuple[RunningRow, bool]]
        self._stop()

    # -- requests -------------------------------------------------------------------------------------------------

    def begin_episodes(self, segment: Segment) -> None:
        """Begin a segment of a request for episodes, with the first rows in all lanes."""
        assert segment.rows is not None
        self.drop()
        self._segment, self._waiting = segment, deque(range(len(segment.rows)))
        self.total = len(segment.rows)
        self._enter(list(range(self.n)))

    def reset(self, agent_info: TensorDict | None, env_info: TensorDict | None) -> None:
        """Let the next slice begin an episode in each lane."""
        self.drop()
        self._info_of, self._env_info_of = agent_info, env_info
        self.live = list(range(self.n))

    @property
    def has_begun(self) -> bool:
        """Whether the lanes have begun the episodes that a slice continues."""
        return self._root is not None

    def begin_anew(self) -> None:
        """Begin an episode in each lane, with the infos of the last ``reset``."""
        self.reset(self._info_of, self._env_info_of)

    def begin_slice(self, segment: Segment) -> None:
        """Begin a slice: the next steps of all live lanes."""
        assert segment.n_steps is not None
        self._segment, self._waiting, self.n_steps = segment, deque(), segment.n_steps
        if isinstance(self.store, SlotWriter):
            self.store.make_room([])
        if segment.agent_info is not None:
            self._info_of = segment.agent_info
        self.total, self.finished, self._is_first = len(self.live), 0, True
        self.active = list(self.live)
        if self._root is None:
            self._root = self._tds.begin(self.live, self.live, self._info_of, self._env_info_of)
            for lane in self.live:
                self.number(lane, self.steps)
        root = self._root.copy()
        if self._info_of is not None:
            root.set("agent_info", self._info_of[self.active])
        self.next_root = root
        self.rows = [self.new_row(at, lane, self.steps) for at, lane in enumerate(self.active)]

    def drop(self) -> None:
        """End all lanes and drop their data."""
        self.live, self._root = [], None
        self._info_of = self._env_info_of = None
        self._stop()

    def cancel(self) -> None:
        """Drop the rows that have not ended."""
        self._first_step = None
        if self.n_steps is not None and self.active:  # steps of these episodes are lost, so they cannot continue
            self.live, self._root = [], None
        self.active, self.rows, self._waiting, self.next_root = [], [], deque(), None

    def _stop(self) -> None:
        self._segment = Segment([], None, None, None)
        self.active, self.rows, self._waiting = [], [], deque()
        self.next_root, self.n_steps, self._first_step = None, None, None
        self._tds.clear_cache()
        if isinstance(self.store, FrameStore):
            self.store.clear()
        else:
            self.store.make_room([])  # a job that was cancelled may have left a full block
        self._finished = []
        self.total = self.finished = 0
        self._is_first = True

    @property
    def is_running(self) -> bool:
        """Whether a row of the segment has not ended."""
        return bool(self.active)

    @property
    def has_finished(self) -> bool:
        """Whether a FrameStore has rows that :meth:`take` has not returned."""
        return bool(self._finished)

    # -- steps ----------------------------------------------------------------------------------------------------

    @torch.no_grad()
    def prepare(self) -> Columns | None:
        """Take the first step of a segment, which the next call of :meth:`run` completes.

        Returns:
            The layout of the data of a step; None if the layout may change from step to step.
        """
        if self._first_step is None:
            self._first_step = self._tds.step()
        return self._tds.columns(self._first_step.frame)

    @torch.no_grad()
    def run(self, stopped: Callable[[], bool]) -> None:
        """Step the active lanes until the segment ends or ``stopped``, called after each step, returns True."""
        while self.is_running:
            if self._is_first or self.next_root is None or self._lane_rows.problem(self.next_root) is not None:
                self._step()
            else:
                self._lane_rows.run(stopped)
            if stopped():
                return

    def _step(self) -> None:
        """Step the policy and the environment once in all active lanes, on TensorDicts."""
        step, self._first_step = self._first_step or self._tds.step(), None
        if self._is_first:
            self._begin_data(step)
            self._is_first = False
        if isinstance(self.store, SlotWriter):
            self.store.write(step.frame, self.active)
        else:
            self.store.write(step.frame, self.rows)
        self.steps += 1
        ended = step.ended.tolist()
        self._prepare_next(step.td, step.state, ended)

    def _begin_data(self, step: LaneStep) -> None:
        """Choose the store for the data of a job, and write the agent's states at the first step of its rows."""
        if self.writer_of is not None and not (isinstance(self.store, SlotWriter) and self.store.fits(step.frame)):
            columns = self._tds.columns(step.frame)
            self.store = FrameStore() if columns is None else self.writer_of(columns)
            for row in self.rows:
                row.begun_at = 0 if isinstance(self.store, FrameStore) else self.store.position
        self._store_states(self.rows, step.before)

    @property
    def n_waiting(self) -> int:
        """The number of rows that have not begun."""
        return len(self._waiting)

    @property
    def restarts(self) -> bool:
        """Whether a lane of the slice begins a new episode in the same row."""
        return self.n_steps is not None and self.auto_reset and not self._segment.finishes

    @property
    def infos_of_lanes(self) -> tuple[TensorDict | None, TensorDict | None]:
        """The infos of all lanes, in slices."""
        return self._info_of, self._env_info_of

    @property
    def infos_of_rows(self) -> tuple[TensorDict | None, TensorDict | None]:
        """The infos of the rows of the segment."""
        return self._segment.agent_info, self._segment.env_info

    @property
    def env_infos(self) -> TensorDict | None:
        """The ``env_info`` that the next resets take: of the rows of the segment, or of all lanes in slices."""
        return (self.infos_of_rows if self.n_steps is None else self.infos_of_lanes)[1]

    def _prepare_next(self, td: TensorDictBase, state: TensorDictBase | None, ended: list[bool]) -> None:
        """End and restart rows after a step, and prepare the root of the next step.

        Args:
            td: the data of the step, of the active lanes ``[k]``.
            state: the agent's next state, or None.
            ended: for each row, whether its episode has ended.
        """
        lanes, rows = self.active, self.rows
        slice_over = self.n_steps is not None and self.steps - rows[0].start == self.n_steps
        continuing = [at for at, end in enumerate(ended) if not end]
        root = self._tds.root_after(td, state)
        if self.restarts:
            restarted = [at for at, end in enumerate(ended) if end]
            continuing = list(range(len(lanes)))
            if restarted:
                again = [lanes[at] for at in restarted]
                fresh = self._tds.begin(again, again, self._info_of, self._env_info_of)
                root = root.copy()  # copied, because the step shares these nested TensorDicts and must not change
                for key in root.keys(True, True):
                    value = root.get(key).clone()
                    value[_tensor(restarted)] = fresh.get(key)
                    root.set(key, value)
                for lane in again:
                    self.number(lane, self.steps)
        kept = set(continuing)
        self.end_rows([row for at, row in enumerate(rows) if at not in kept], alive=False)
        if slice_over:
            self.end_rows([rows[at] for at in continuing], alive=True)
        free = [lanes[at] for at in range(len(lanes)) if at not in kept]
        next_root: TensorDictBase | None = root
        if len(continuing) < len(lanes):
            next_root = root[_tensor(continuing, dtype=torch.int64)] if continuing else None
        self.active, self.rows = [lanes[at] for at in continuing], [rows[at] for at in continuing]
        self.next_root = next_root
        if isinstance(self.store, SlotWriter):
            self.store.make_room([] if slice_over else self.rows)
        if free and not self.resets_whole:
            self._enter(free)
        self.after_rows(slice_over=slice_over)

    def end_rows(self, rows: list[RunningRow], *, alive: bool) -> None:
        """End rows, after their last step was stored.

        Args:
            rows: the rows.
            alive: the rows can continue in another slice.
        """
        for row in rows:
            if isinstance(self.store, SlotWriter):
                self.store.end(row, alive)
            else:
                row.length = self.steps - row.start
                self._finished.append((row, alive))
        self.finished += len(rows)

    def after_rows(self, *, slice_over: bool) -> None:
        """End the slice if it is over, or begin rows together if all lanes are idle."""
        if self.n_steps is not None:
            if slice_over or not self.active:
                self.live, self._root = self.active, self.next_root
                self.active, self.rows, self.next_root = [], [], None
        elif not self.active and self._waiting:
            self._enter(list(range(self.n)))

    def next_places(self, free: list[int]) -> tuple[list[int], list[int]]:
        """Return the lanes that begin a row, of some free lanes, and the places of these rows in the segment."""
        if self.resets_whole and self.active:
            return [], []
        waiting = self._waiting
        places = [waiting.popleft() for _ in range(min(len(free), len(waiting)))]
        return free[: len(places)], places

    def put_back(self, places: list[int]) -> None:
        """Let rows wait again that :meth:`next_places` has returned."""
        self._waiting.extendleft(reversed(places))

    def _enter(self, free: list[int]) -> None:
        """Begin the next waiting rows in free lanes."""
        lanes, places = self.next_places(free)
        if not places:
            return
        try:
            fresh = self._tds.begin(lanes, places, *self.infos_of_rows)
        except NotSupported:
            if self.resets_whole or not self.active:
                raise
            self.resets_whole = True  # these rows wait until all lanes are idle, and begin together
            self.put_back(places)
            return
        rows = []
        for lane, place in zip(lanes, places, strict=True):
            self.number(lane, self.steps)
            rows.append(self.new_row(place, lane, self.steps))
        if not self._is_first:
            self._store_states(rows, fresh.get("agent_state", None))
        if self.next_root is None:
            self.active, self.rows, self.next_root = lanes, rows, fresh
            return
        order = sorted(range(len(self.active) + len(lanes)), key=[*self.active, *lanes].__getitem__)
        joined = cat_tds([self.next_root.select(*fresh.keys()), fresh])
        self.next_root = joined[_tensor(order)]
        self.active = [[*self.active, *lanes][at] for at in order]
        self.rows = [[*self.rows, *rows][at] for at in order]

    def new_row(self, place: int, lane: int, steps: int, position: int | None = None) -> RunningRow:
        """Return a row that begins in a lane.

        Args:
            place: index of the row in the segment.
            lane: the lane.
            steps: number of steps that lanes have taken.
            position: position of its first step in the block; by default the current one.
        """
        if position is None:
            position = self.store.position if isinstance(self.store, SlotWriter) else 0
        number = lane + self.first_lane if self._segment.rows is None else self._segment.rows[place]
        return RunningRow(place, number, lane + self.first_lane, lane, self.episode_of.item(lane), steps, position)

    def number(self, lane: int, steps: int) -> None:
        """Number the episode that begins in a lane, after some steps of the lanes."""
        self.episode_of[lane] = self.episodes * self.n_workers + self.worker
        self.episode_begun[lane] = steps
        self.episodes += 1

    def _store_states(self, rows: list[RunningRow], state: TensorDictBase | None) -> None:
        """Store the agent's states ``[k]`` at the first step of rows."""
        if state is None or self.store_agent_state == "none":
            return
        if isinstance(self.store, SlotWriter):
            self.store.write_state(state, [row.local_lane for row in rows])
        else:
            for at, row in enumerate(rows):
                row.state = state[at]

    # -- results --------------------------------------------------------------------------------------------------

    def take(self, version: int = 0) -> Trajectories | None:
        """Return the rows that have ended since the last call, sorted.

        Returns None if no row has ended.

        Args:
            version: version of the policy.
        """
        taken, self._finished = sorted(self._finished, key=lambda each: each[0].place), []
        if not taken:
            return None
        rows, segment = [row for row, _ in taken], self._segment
        assert isinstance(self.store, FrameStore)
        steps = self.store.take(rows, self.rows)
        slices = segment.rows is None
        places = _tensor([row.local_lane if slices else row.place for row in rows])
        agent_info = self._info_of if slices else segment.agent_info
        env_info = self._env_info_of if slices else segment.env_info
        states = [row.state for row in rows if row.state is not None]
        size = [len(rows)]
        return Trajectories(  # type: ignore[call-arg]  # tensorclass adds batch_size
            steps=steps,
            length=_tensor([row.length for row in rows]),
            alive=_tensor([alive for _, alive in taken]),
            row=_tensor([row.number for row in rows]),
            lane=_tensor([row.lane for row in rows]),
            episode=_tensor([row.episode for row in rows]),
            policy_version=torch.full(size, version, dtype=torch.int64, device=CPU),
            agent_info=None if agent_info is None else agent_info[places],
            env_info=None if env_info is None else env_info[places],
            agent_state=stack_tds(states) if states else None,
            batch_size=size,
        )


def _tensor(values: Any, *, dtype: torch.dtype | None = None) -> torch.Tensor:
    return torch.tensor(values, dtype=dtype, device=CPU)
