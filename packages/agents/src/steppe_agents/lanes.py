"""Lanes: run rows of requests in the environments of one process.

A lane is one environment (a row of the batch of environments) with the agent's state for it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from tensordict import LazyStackedTensorDict, TensorDict, TensorDictBase
from tensordict import cat as cat_tds
from tensordict import stack as stack_tds

from steppe.collectors import first_call
from steppe.envs import EnvBase, RandomActions, declared_keys, done_groups, rows_ended, with_written, without_private
from steppe.errors import NotSupported, PolicyError, SpecError
from steppe.specs import CPU, Composite, below_next, make_composite_from_td
from steppe.storage import no_storage_reason
from steppe_agents.agent_state import AgentState
from steppe_agents.agent_view import AgentView
from steppe_agents.frame_store import FrameStore
from steppe_agents.history import History
from steppe_agents.lane_rows import LaneRows
from steppe_agents.padded_call import PaddedCall
from steppe_agents.protected_entries import ProtectedEntries
from steppe_agents.running_row import RunningRow
from steppe_agents.segment import Segment
from steppe_agents.slots import Columns, SlotWriter
from steppe_agents.trajectories import Trajectories

__all__ = ["TRAJ_IDS", "Lanes"]

#: The number of the episode of each step, which is stored if a row may have several episodes.
TRAJ_IDS = ("collector", "traj_ids")


class Lanes:
    """Run the rows of a segment.

    A lane whose row has ended takes the next row; idle lanes are not stepped. The first step of a segment is a step on
    TensorDicts, which shows what the policy writes. The others go through the row writer of the environment if it has
    one, see :class:`LaneRows`.

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
        self._groups = done_groups(env.full_done_spec)
        self.declared = declared_keys(env, policy)
        self._limited = [group for group in self._groups if "truncated" in group.names]
        if max_steps is not None and not self._limited:
            raise SpecError("max_steps= needs a 'truncated' entry in the done spec: env.add_truncated_keys() adds one.")
        self.compact, self._name, self._trusted = compact, name, trusted
        self.writer_of = writer_of
        self.store: FrameStore | SlotWriter = FrameStore()
        self.first_lane = 0
        self._padded_call = PaddedCall(lambda td: self.act(td), self.n)
        self._lane_rows = LaneRows(self)
        self.live: list[int] = []
        self._root: TensorDictBase | None = None
        self.episode_of = np.zeros(self.n, np.int64)
        self.episode_begun = np.zeros(self.n, np.int64)
        self._info_of: TensorDict | None = None
        self._env_info_of: TensorDict | None = None
        self._checked = False
        self._first_step: _Step | None = None
        self.steps_whole = self.resets_whole = False
        self._segment: Segment
        self.active: list[int]
        self.rows: list[RunningRow]
        self._waiting: list[int]
        self.next_root: TensorDictBase | None
        self.n_steps: int | None
        self._finished: list[tuple[RunningRow, bool]]
        self._stop()

    # -- requests -------------------------------------------------------------------------------------------------

    def begin_episodes(self, segment: Segment) -> None:
        """Begin a segment of a request for episodes, with the first rows in all lanes."""
        assert segment.rows is not None
        self.drop()
        self._segment, self._waiting = segment, list(range(len(segment.rows)))
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
        self._segment, self._waiting, self.n_steps = segment, [], segment.n_steps
        if isinstance(self.store, SlotWriter):
            self.store.make_room([])
        if segment.agent_info is not None:
            self._info_of = segment.agent_info
        self.total, self.finished, self._is_first = len(self.live), 0, True
        self.active = list(self.live)
        if self._root is None:
            self._root = self._fresh(self.live, self.live, self._info_of, self._env_info_of)
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
        self.active, self.rows, self._waiting, self.next_root = [], [], [], None

    def _stop(self) -> None:
        self._segment = Segment([], None, None, None)
        self.active, self.rows, self._waiting = [], [], []
        self.next_root, self.n_steps, self._first_step = None, None, None
        self._padded_call.clear_cache()
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
            self._first_step = self._step_lanes()
        return self._columns(self._first_step.frame)

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
        step, self._first_step = self._first_step or self._step_lanes(), None
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

    def _begin_data(self, step: _Step) -> None:
        """Choose the store for the data of a job, and write the agent's states at the first step of its rows."""
        if self.writer_of is not None and not (isinstance(self.store, SlotWriter) and self.store.fits(step.frame)):
            columns = self._columns(step.frame)
            self.store = FrameStore() if columns is None else self.writer_of(columns)
            for row in self.rows:
                row.begun_at = 0 if isinstance(self.store, FrameStore) else self.store.position
        self._store_states(self.rows, step.before)

    def _step_lanes(self) -> _Step:
        """Step the active lanes, without storing the data."""
        root = self.next_root
        assert root is not None
        td, state = self._acted(root, self.active)
        ended = rows_ended(td.get("next"), self._groups)
        if self.max_steps is not None:
            ended = self._truncate(td, ended)
        return _Step(td, root.get("agent_state", None), state, ended, self._framed(td, state))

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
        root = self._root_after(td, state)
        if self.restarts:
            restarted = [at for at, end in enumerate(ended) if end]
            continuing = list(range(len(lanes)))
            if restarted:
                again = [lanes[at] for at in restarted]
                fresh = self._fresh(again, again, self._info_of, self._env_info_of)
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
        places, self._waiting = self._waiting[: len(free)], self._waiting[len(free) :]
        return free[: len(places)], places

    def put_back(self, places: list[int]) -> None:
        """Let rows wait again that :meth:`next_places` has returned."""
        self._waiting = places + self._waiting

    def _enter(self, free: list[int]) -> None:
        """Begin the next waiting rows in free lanes."""
        lanes, places = self.next_places(free)
        if not places:
            return
        try:
            fresh = self._fresh(lanes, places, *self.infos_of_rows)
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
        return RunningRow(place, number, lane + self.first_lane, lane, int(self.episode_of[lane]), steps, position)

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

    # -- the policy and the environment ---------------------------------------------------------------------------

    @torch.no_grad()
    def _fresh(
        self, lanes: list[int], places: list[int], agent_info: TensorDict | None, env_info: TensorDict | None
    ) -> TensorDictBase:
        """Begin episodes in some lanes, and return their roots ``[k]``.

        The roots have infos and state.

        Args:
            lanes: the lanes.
            places: for each lane, the index of its row in the infos.
            agent_info, env_info: infos of all rows, or None.
        """
        env = self.env
        infos = None if env_info is None else env_info[_tensor(places)]
        if not env.batch_dims:
            root = (env.reset(env_info=infos[0]) if infos is not None else env.reset()).unsqueeze(0)
        elif len(lanes) == self.n:
            root = env.reset(env_info=infos) if infos is not None else env.reset()
        elif self.resets_whole:  # the other lanes are idle, and their data is dropped
            wide = None if env_info is None else env_info[_tensor(places + places[:1] * (self.n - len(places)))]
            root = (env.reset(env_info=wide) if wide is not None else env.reset())[_tensor(lanes)]
        else:
            root = env.reset_at(None, lanes, env_info=infos)
        root = root.copy()
        root.batch_size = torch.Size([len(lanes)])
        if "is_init" not in root.keys():
            root.set("is_init", torch.ones(len(lanes), 1, dtype=torch.bool, device=CPU))
        if agent_info is not None:
            root.set("agent_info", agent_info[_tensor(places)])
        if infos is not None:
            root.set("env_info", infos)
        self.agent_state.begin(root)
        if self.history is not None:
            self.history.begin(lanes)
        return root

    def _acted(self, root: TensorDictBase, lanes: list[int]) -> tuple[TensorDictBase, TensorDictBase | None]:
        """Return the step of some lanes ``[k]``, and the agent's next state."""
        env = self.env
        td = root.copy()
        if self.history is not None:
            td.set("history", self.history.of(lanes))
        if isinstance(self.act, RandomActions):
            td = self._acted_at_random(self.act, td, lanes)
        elif self._checked:
            td = self._called(td, lanes)
        else:
            protected = ProtectedEntries(td, of_env=True)
            td = first_call(self._name, self.policy, lambda data: self._called(data, lanes), td, trusted=self._trusted)
            protected.check(self.policy, td)
            self._check_next(td)
            self._checked = True
        state = self.agent_state.next_state(td)
        td = td.exclude("history")
        if "next" in td.keys():
            td = td.exclude(("next", "agent_state"))
            if td.get("next").is_empty():
                td = td.exclude("next")
        if not env.batch_dims:
            td.set("next", env.step(td[0]).get("next").unsqueeze(0))
        elif len(lanes) == self.n:
            td = env.step(td)
        else:
            td = self._stepped_at(td, lanes)
        if self.history is not None:
            self.history.add(td, lanes)
        return td, state

    def _stepped_at(self, td: TensorDictBase, lanes: list[int]) -> TensorDictBase:
        """Step some lanes of the batch.

        Batches that step only as a whole raise NotSupported before they step. All of their lanes are stepped, the idle
        ones with the action of another lane, and the data of the idle lanes is dropped.
        """
        if not self.steps_whole:
            try:
                return self.env.step_at(td, lanes)
            except NotSupported:
                self.steps_whole = True
        places = torch.zeros(self.n, dtype=torch.int64, device=CPU)
        places[_tensor(lanes)] = torch.arange(len(lanes), device=CPU)
        return self.env.step(td[places])[_tensor(lanes)]

    def _acted_at_random(self, act: RandomActions, td: TensorDictBase, lanes: list[int]) -> TensorDictBase:
        """Return the data of some lanes with random actions.

        All lanes draw, so that one seed gives one data set.
        """
        env = self.env
        if act.in_blocks:
            for key, values in act.take(1).items():
                td.set(key, values[0, lanes] if env.batch_dims else values)
            return td
        if not env.batch_dims:
            return td.update(env.rand_action(td[0]).select(*env.action_keys).unsqueeze(0))
        return env.rand_action(td) if len(lanes) == self.n else env.rand_action_at(td, lanes)

    def fitting(self, key: Any, value: Any, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        """Return an entry ``[k]`` of a step as a plain tensor, if it has the shape and dtype of the first step.

        Raises:
            SpecError: it has not, or is missing.
        """
        if value is None:
            raise SpecError(f"A step does not have the entries of the first one: {key!r} is missing.")
        if tuple(value.shape[1:]) != shape or value.dtype is not dtype:
            raise SpecError(
                f"A step does not have the entries of the first one: {key!r} has shape {tuple(value.shape[1:])} and "
                f"{value.dtype}, and had {shape} and {dtype} in the first step."
            )
        detached: torch.Tensor = value.detach()
        return detached

    def _called(self, td: TensorDictBase, lanes: list[int]) -> TensorDictBase:
        """Return the data of some lanes with the output of the policy."""
        if not self.compact:
            return self._padded_call(td, lanes)
        return with_written(td, self.act(td))

    def _check_next(self, td: TensorDictBase) -> None:
        """Raise an error if the policy wrote an entry of ``next`` that would be lost.

        The next root has only entries that a reset writes too.

        Raises:
            PolicyError: the policy wrote such an entry.
        """
        following = td.get("next", None)
        if following is None:
            return
        known = {*self.env.state_keys, *self.env.observation_keys}
        lost = [key for key in following.keys(True, True) if key not in known and key[0] != "agent_state"]
        if lost:
            raise PolicyError(
                f"The policy writes {below_next(lost[0])!r}, which the next step reads only if a reset writes it too: "
                "append a TensorDictPrimer with it to the environment, or declare agent_state_spec."
            )

    def _truncate(self, td: TensorDictBase, ended: torch.Tensor) -> torch.Tensor:
        """Mark rows that have reached ``max_steps`` as truncated.

        Returns which rows have ended.
        """
        steps = self.steps + 1 - self.episode_begun[self.active]
        over_limit = torch.from_numpy(steps >= (self.max_steps or 0)) & ~ended
        if not bool(over_limit.any()):
            return ended
        following = td.get("next")
        for group in self._limited:
            for name in ("truncated", "done"):
                value = following.get(group.key(name)).clone()
                value[over_limit] = True
                following.set(group.key(name), value)
        return ended | over_limit

    def _root_after(self, td: TensorDictBase, state: TensorDictBase | None) -> TensorDictBase:
        """Return the root of the next step, for rows that continue."""
        env = self.env
        root = env.step_mdp(td.exclude("agent_info", "env_info", "agent_state", "is_init"))
        root = root.select(*env.observation_keys, *env.done_keys, *env.state_keys, strict=False)
        if "is_init" not in root.keys():
            root.set("is_init", torch.zeros(len(self.active), 1, dtype=torch.bool, device=CPU))
        for name in ("agent_info", "env_info"):
            value = td.get(name, None)
            if value is not None:
                root.set(name, value)
        if state is not None:
            root.set("agent_state", state)
        return root

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
        made: Any = Trajectories
        return made(  # type: ignore[no-any-return]
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

    # -- the data of a step ---------------------------------------------------------------------------------------

    def _columns(self, frame: TensorDictBase) -> Columns | None:
        """Return the layout of a step.

        Returns None if it may change from step to step, or has entries that are not tensors.
        """
        if self.env.has_dynamic_specs or isinstance(frame, LazyStackedTensorDict):
            return None
        row = frame[0]
        if not all(isinstance(value, torch.Tensor) for value in row.values(True, True)):
            return None
        spec, states = make_composite_from_td(row, unsqueeze_null_shapes=False), Composite({})
        if self.agent_state.keys and self.store_agent_state != "none":
            states = self.agent_state.spec
        return None if no_storage_reason(spec) is not None else Columns(spec, states)

    def _framed(self, td: TensorDictBase, state: TensorDictBase | None) -> TensorDictBase:
        """Return the entries of a step that are stored."""
        hidden = ["agent_info", "env_info", "collector"] + ([] if self.store_agent_state == "all" else ["agent_state"])
        frame = without_private(td, self.declared).exclude(*hidden)
        if state is not None and self.store_agent_state == "all":
            following = frame.get("next").copy()
            following.set("agent_state", state)
            frame.set("next", following)
        if self.auto_reset:
            frame.set(TRAJ_IDS, torch.from_numpy(self.episode_of[self.active]))
        return frame


class _Step(NamedTuple):
    """A step of the active lanes.

    Attributes:
        td: the data of the step.
        before: the agent's state before the step, or None.
        state: the agent's next state, or None.
        ended: which rows have ended.
        frame: the entries of ``td`` that are stored.
    """

    td: TensorDictBase
    before: TensorDictBase | None
    state: TensorDictBase | None
    ended: torch.Tensor
    frame: TensorDictBase


def _tensor(values: Any, *, dtype: torch.dtype | None = None) -> torch.Tensor:
    return torch.tensor(values, dtype=dtype, device=CPU)
