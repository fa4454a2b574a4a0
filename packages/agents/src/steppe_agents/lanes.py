"""Lanes: run rows of requests in the environments of one process.

A lane is one environment (a row of the batch of environments) with the agent's state for it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

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
from steppe_agents.frame_store import FrameStore, RunningRow
from steppe_agents.padded_call import PaddedCall
from steppe_agents.protected_entries import ProtectedEntries
from steppe_agents.segment import Segment
from steppe_agents.slots import Columns, SlotWriter
from steppe_agents.trajectories import Trajectories

__all__ = ["Lanes"]


class Lanes:
    """Run the rows of a segment.

    A lane whose row has ended takes the next row; idle lanes are not stepped.

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

    Attributes:
        live: lanes that can continue in the next slice.
        store: stores the steps.
        first_lane: the number of the first lane of this process, counted over all workers.
        worker, n_workers: the index of this worker, and the number of workers. Worker w of n numbers its episodes
            w, w + n, w + 2 n, so that no two workers use the same number.
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
    ) -> None:
        if env.batch_dims > 1:
            raise NotSupported(f"Requests need a batch of one dimension, but this one has {tuple(env.batch_size)}.")
        if store_agent_state not in ("first", "all", "none"):
            raise SpecError(f"store_agent_state must be 'first', 'all' or 'none', found {store_agent_state!r}.")
        self.env, self.act, self.policy = env, act, policy
        self._agent_state = AgentState(policy)
        self.max_steps, self.auto_reset, self.store_agent_state = max_steps, auto_reset, store_agent_state
        self.n = env.batch_size[0] if env.batch_dims else 1
        self.episodes = 0
        self._groups = done_groups(env.full_done_spec)
        self._declared = declared_keys(env, policy)
        self._limited = [group for group in self._groups if "truncated" in group.names]
        if max_steps is not None and not self._limited:
            raise SpecError("max_steps= needs a 'truncated' entry in the done spec: env.add_truncated_keys() adds one.")
        self.compact, self._name, self._trusted = compact, name, trusted
        self.store: FrameStore | SlotWriter = FrameStore()
        self.first_lane = 0
        self._padded_call = PaddedCall(act, self.n)
        self.live: list[int] = []
        self._root: TensorDictBase | None = None
        self._episode_of: dict[int, int] = {}
        self._steps_of: dict[int, int] = {}
        self._info_of: TensorDict | None = None
        self._env_info_of: TensorDict | None = None
        self._checked = False
        self._first_step: _Step | None = None
        #: Whether the batch has refused to step, or to reset, some of its rows.
        self._steps_whole = self._resets_whole = False
        self._segment: Segment
        self._lanes: list[int]
        self._rows: list[RunningRow]
        self._waiting: list[int]
        self._next_root: TensorDictBase | None
        self._n_steps: int | None
        self._finished: list[tuple[RunningRow, bool]]
        self._stop()

    # -- requests -------------------------------------------------------------------------------------------------

    def begin_episodes(self, segment: Segment) -> None:
        """Begin a segment of a request for episodes, with the first rows in all lanes."""
        assert segment.rows is not None
        self.drop()
        self._segment, self._waiting, self._n_steps = segment, list(range(len(segment.rows))), None
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
        self._segment, self._waiting, self._n_steps = segment, [], segment.n_steps
        if segment.agent_info is not None:
            self._info_of = segment.agent_info
        self.total = len(self.live)
        self._lanes = list(self.live)
        if self._root is None:
            self._root = self._fresh(self.live, self.live, self._info_of, self._env_info_of)
            for lane in self.live:
                self._number(lane)
        root = self._root.copy()
        if self._info_of is not None:
            root.set("agent_info", self._info_of[self._lanes])
        self._next_root = root
        self._rows = [self._row(at, lane, lane + self.first_lane) for at, lane in enumerate(self._lanes)]
        self._states(self._rows, root)

    def drop(self) -> None:
        """End all lanes and drop their data."""
        self.live, self._root = [], None
        self._info_of = self._env_info_of = None
        self._stop()

    def cancel(self) -> None:
        """Drop the rows that have not ended."""
        self.store.drop_running()
        self._first_step = None
        if self._n_steps is not None and self._lanes:  # steps of these episodes are lost, so they cannot continue
            self.live, self._root = [], None
        self._lanes, self._rows, self._waiting, self._next_root = [], [], [], None

    def _stop(self) -> None:
        self._segment = Segment([], None, None, None)
        self._lanes, self._rows, self._waiting = [], [], []
        self._next_root, self._n_steps, self._first_step = None, None, None
        self._padded_call.clear_cache()
        self.store.clear()
        self._finished = []
        self.total = 0
        self.finished = 0

    @property
    def is_running(self) -> bool:
        """Whether a row of the segment has not ended."""
        return bool(self._lanes)

    @property
    def has_finished(self) -> bool:
        """Whether rows have ended that :meth:`take` has not returned."""
        return bool(self._finished)

    def forget_finished(self) -> None:
        """Drop the list of ended rows, because a SlotWriter reports them."""
        self._finished = []

    # -- steps ----------------------------------------------------------------------------------------------------

    @torch.no_grad()
    def prepare(self) -> Columns | None:
        """Take the first step of a segment, which the next call of :meth:`step` completes.

        Returns:
            The layout of the data of a step; None if the layout may change from step to step.
        """
        if self._first_step is None:
            self._first_step = self._step_lanes()
        return self._columns(self._first_step.frame)

    @torch.no_grad()
    def step(self) -> None:
        """Step the policy and the environment once in all active lanes."""
        step, self._first_step = self._first_step or self._step_lanes(), None
        rows = self._rows
        self.store.write(step.frame, rows)
        for row in rows:
            row.length += 1
        self._prepare_next(step.td, step.state, step.ended.tolist())

    def _step_lanes(self) -> _Step:
        """Step the active lanes, without storing the data."""
        lanes, rows, root = self._lanes, self._rows, self._next_root
        assert root is not None
        td, state = self._acted(root, lanes)
        ended = rows_ended(td.get("next"), self._groups)
        for row in rows:
            self._steps_of[row.local_lane] += 1
        if self.max_steps is not None:
            ended = self._truncate(td, ended)
        return _Step(td, state, ended, self._framed(td, state))

    def _prepare_next(self, td: TensorDictBase, state: TensorDictBase | None, ended: list[bool]) -> None:
        """End and restart rows after a step, and prepare the root of the next step.

        Args:
            td: the data of the step, of the active lanes ``[k]``.
            state: the agent's next state, or None.
            ended: for each row, whether its episode has ended.
        """
        lanes, rows = self._lanes, self._rows
        slice_over = self._n_steps is not None and rows[0].length == self._n_steps
        continuing = [at for at, end in enumerate(ended) if not end]
        root = self._root_after(td, state)
        restarted: list[int] = []
        if self._n_steps is not None and self.auto_reset and not self._segment.finishes:
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
                    self._number(lane)
        kept = set(continuing)
        for at, row in enumerate(rows):
            if at not in kept or slice_over:
                alive = self._n_steps is not None and at in kept
                self._finished.append((row, alive))
                self.store.end(row, alive)
                self.finished += 1
        free = [lanes[at] for at in range(len(lanes)) if at not in kept]
        next_root: TensorDictBase | None = root
        if len(continuing) < len(lanes):
            next_root = root[_tensor(continuing, dtype=torch.int64)] if continuing else None
        self._lanes, self._rows = [lanes[at] for at in continuing], [rows[at] for at in continuing]
        self._next_root = next_root
        if self._n_steps is not None:
            if slice_over or not self._lanes:
                self.live, self._root = self._lanes, next_root
                self._lanes, self._rows, self._next_root = [], [], None
        elif self._waiting and (not self._lanes if self._resets_whole else free):
            self._enter(list(range(self.n)) if self._resets_whole else free)

    def _enter(self, free: list[int]) -> None:
        """Begin the next waiting rows in free lanes."""
        places, waiting = self._waiting[: len(free)], self._waiting[len(free) :]
        lanes = free[: len(places)]
        try:
            fresh = self._fresh(lanes, places, self._segment.agent_info, self._segment.env_info)
        except NotSupported:
            if self._resets_whole or not self._lanes:
                raise
            self._resets_whole = True  # these rows wait until all lanes are idle, and begin together
            return
        self._waiting = waiting
        rows = []
        for lane, place in zip(lanes, places, strict=True):
            self._number(lane)
            assert self._segment.rows is not None
            rows.append(self._row(place, lane, self._segment.rows[place]))
        self._states(rows, fresh)
        if self._next_root is None:
            self._lanes, self._rows, self._next_root = lanes, rows, fresh
            return
        order = sorted(range(len(self._lanes) + len(lanes)), key=[*self._lanes, *lanes].__getitem__)
        joined = cat_tds([self._next_root.select(*fresh.keys()), fresh])
        self._next_root = joined[_tensor(order)]
        self._lanes = [[*self._lanes, *lanes][at] for at in order]
        self._rows = [[*self._rows, *rows][at] for at in order]

    def _row(self, place: int, lane: int, number: int) -> RunningRow:
        return RunningRow(place, number, lane + self.first_lane, lane, self._episode_of[lane])

    def _number(self, lane: int) -> None:
        """Number the episode that begins in a lane."""
        self._episode_of[lane] = self.episodes * self.n_workers + self.worker
        self._steps_of[lane] = 0
        self.episodes += 1

    def _states(self, rows: list[RunningRow], root: TensorDictBase) -> None:
        """Store the agent's state at the first step of rows."""
        state = root.get("agent_state", None)
        if state is not None and self.store_agent_state != "none":
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
        elif self._resets_whole:  # the other lanes are idle, and their data is dropped
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
        self._agent_state.begin(root)
        return root

    def _acted(self, root: TensorDictBase, lanes: list[int]) -> tuple[TensorDictBase, TensorDictBase | None]:
        """Return the step of some lanes ``[k]``, and the agent's next state."""
        env = self.env
        td = root.copy()
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
        state = self._agent_state.next_state(td)
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
        return td, state

    def _stepped_at(self, td: TensorDictBase, lanes: list[int]) -> TensorDictBase:
        """Step some lanes of the batch.

        Batches that step only as a whole raise NotSupported before they step. All of their lanes are stepped, the idle
        ones with the action of another lane, and the data of the idle lanes is dropped.
        """
        if not self._steps_whole:
            try:
                return self.env.step_at(td, lanes)
            except NotSupported:
                self._steps_whole = True
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
        over_limit = _tensor([self._steps_of[row.local_lane] >= (self.max_steps or 0) for row in self._rows]) & ~ended
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
            root.set("is_init", torch.zeros(len(self._lanes), 1, dtype=torch.bool, device=CPU))
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
        steps = self.store.take(rows, self._rows)
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
        spec, first = make_composite_from_td(row, unsqueeze_null_shapes=False), self._rows[0].state
        states = Composite({}) if first is None else make_composite_from_td(first, unsqueeze_null_shapes=False)
        return None if no_storage_reason(spec) is not None else Columns(spec, states)

    def _framed(self, td: TensorDictBase, state: TensorDictBase | None) -> TensorDictBase:
        """Return the entries of a step that are stored."""
        hidden = ["agent_info", "env_info", "collector"] + ([] if self.store_agent_state == "all" else ["agent_state"])
        frame = without_private(td, self._declared).exclude(*hidden)
        if state is not None and self.store_agent_state == "all":
            following = frame.get("next").copy()
            following.set("agent_state", state)
            frame.set("next", following)
        return frame


class _Step(NamedTuple):
    """A step of the active lanes.

    Attributes:
        td: the data of the step.
        state: the agent's next state, or None.
        ended: which rows have ended.
        frame: the entries of ``td`` that are stored.
    """

    td: TensorDictBase
    state: TensorDictBase | None
    ended: torch.Tensor
    frame: TensorDictBase


def _tensor(values: Any, *, dtype: torch.dtype | None = None) -> torch.Tensor:
    return torch.tensor(values, dtype=dtype, device=CPU)
