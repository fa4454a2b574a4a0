"""Lanes: the environments of one process, each with the row of a request that it runs and the agent's state of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from tensordict import LazyStackedTensorDict, TensorDict, TensorDictBase
from tensordict import cat as cat_tds

from steppe.collectors import first_call, row_ends
from steppe.envs import EnvBase, RandomActions, declared_keys, done_groups, without_private
from steppe.errors import NotSupported, PolicyError, SpecError
from steppe.specs import CPU, Composite, below_next, make_composite_from_td
from steppe.storage import storage_problem
from steppe_agents.agent_state import AgentState
from steppe_agents.all_lanes import AllLanes
from steppe_agents.kept_rows import KeptFrames, Row
from steppe_agents.segment import Segment
from steppe_agents.slots import Columns
from steppe_agents.trajectories import Trajectories

__all__ = ["Lanes"]


class Lanes:
    """Runs rows of requests: what has no work costs nothing, and a lane whose row has ended takes the next.

    Args:
        env: one environment, or a batch of one dimension.
        act: the policy, or random actions.
        policy: the policy as the caller made it; None for random actions.
        max_steps: truncate a row after so many steps.
        auto_reset: a slice begins anew in place where an episode ends, instead of leaving the lane.
        store_agent_state: ``"first"`` in each row, in ``"all"`` steps, or ``"none"``.
        compact: call the policy with the rows that are at work, and no others; False calls it with all lanes, and
            ``("collector", "mask")`` says which are at work.
        name: of the collector, for errors.
        trusted: let through what the policy raises in its first call.

    Attributes:
        live: lanes that can go on with a slice.
        record: where steps go.
        first_lane: the number of the first lane, where there are other processes.
    """

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
            raise NotSupported(f"Requests need a batch of one dimension, and this one has {tuple(env.batch_size)}.")
        if store_agent_state not in ("first", "all", "none"):
            raise SpecError(f"store_agent_state is 'first', 'all' or 'none', found {store_agent_state!r}.")
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
        self.record: Any = KeptFrames()
        self.first_lane = 0
        self._all_lanes = AllLanes(act, self.n)
        self.live: list[int] = []
        self._root: TensorDictBase | None = None
        self._episode_of: dict[int, int] = {}
        self._steps_of: dict[int, int] = {}
        self._info_of: TensorDict | None = None
        self._env_info_of: TensorDict | None = None
        self._checked = False
        self._taken: _Taken | None = None
        self._segment: Segment
        self._lanes: list[int]
        self._rows: list[Row]
        self._waiting: list[int]
        self._carrier: TensorDictBase | None
        self._n_steps: int | None
        self._finished: list[tuple[Row, bool]]
        self._stop()

    # -- requests -------------------------------------------------------------------------------------------------

    def begin_episodes(self, segment: Segment) -> None:
        """Begin rows of a request, as many as there are lanes."""
        assert segment.rows is not None
        self.drop()
        self._segment, self._waiting, self._n_steps = segment, list(range(len(segment.rows))), None
        self.total = len(segment.rows)
        self._enter(list(range(self.n)))

    def reset(self, agent_info: TensorDict | None, env_info: TensorDict | None) -> None:
        """Begin an episode in every lane, for slices."""
        self.drop()
        lanes = list(range(self.n))
        self._info_of, self._env_info_of = agent_info, env_info
        self._root = self._fresh(lanes, lanes, agent_info, env_info)
        self.live = lanes
        for lane in lanes:
            self._number(lane)

    def begin_anew(self) -> None:
        """Begin an episode in every lane, with the infos of the last ``reset``."""
        self.reset(self._info_of, self._env_info_of)

    def begin_slice(self, segment: Segment) -> None:
        """Go on for some steps with the lanes that are live."""
        assert segment.n_steps is not None
        self._segment, self._waiting, self._n_steps = segment, [], segment.n_steps
        if segment.agent_info is not None:
            self._info_of = segment.agent_info
        self.total = len(self.live)
        self._lanes = list(self.live)
        root = self._root
        assert root is not None
        root = root.copy()
        if self._info_of is not None:
            root.set("agent_info", self._info_of[self._lanes])
        self._carrier = root
        self._rows = [self._row(at, lane, lane + self.first_lane) for at, lane in enumerate(self._lanes)]
        self._states(self._rows, root)

    def drop(self) -> None:
        """Forget the lanes that are live."""
        self.live, self._root = [], None
        self._info_of = self._env_info_of = None
        self._stop()

    def cancel(self) -> None:
        """Forget the rows that have not ended."""
        self.record.drop_running()
        self._taken = None
        if self._n_steps is not None and self._lanes:  # the environments have gone on without their data
            self.live, self._root = [], None
        self._lanes, self._rows, self._waiting, self._carrier = [], [], [], None

    def _stop(self) -> None:
        self._segment = Segment([], None, None, None)
        self._lanes, self._rows, self._waiting = [], [], []
        self._carrier, self._n_steps, self._taken = None, None, None
        self._all_lanes.forget()
        self.record.clear()
        self._finished = []
        self.total = 0
        self.finished = 0

    @property
    def at_work(self) -> bool:
        """Whether some row has not ended."""
        return bool(self._lanes)

    @property
    def has_finished(self) -> bool:
        """Whether rows have ended that were not taken."""
        return bool(self._finished)

    def forget_finished(self) -> None:
        """Forget rows that have ended, whose record says so itself."""
        self._finished = []

    # -- steps ----------------------------------------------------------------------------------------------------

    @torch.no_grad()
    def prepare(self) -> Columns | None:
        """Let the policy and the environment act once in all rows at work, and say what a step holds.

        ``step`` then goes on with that step.

        Returns:
            None where what a step holds has no fixed place.
        """
        if self._taken is None:
            self._taken = self._take()
        return self._columns(self._taken.frame)

    @torch.no_grad()
    def step(self) -> None:
        """Let the policy and the environment act once in all rows that are at work."""
        taken, self._taken = self._taken or self._take(), None
        rows = self._rows
        self.record.write(taken.frame, rows)
        for row in rows:
            row.length += 1
        self._go_on(taken.td, taken.state, taken.ended.tolist())

    def _take(self) -> _Taken:
        lanes, rows, carrier = self._lanes, self._rows, self._carrier
        assert carrier is not None
        td, state = self._acted(carrier, lanes)
        ended = row_ends(td.get("next"), self._groups)
        for row in rows:
            self._steps_of[row.own_lane] += 1
        if self.max_steps is not None:
            ended = self._truncate(td, ended)
        return _Taken(td, state, ended, self._framed(td, state))

    def _go_on(self, td: TensorDictBase, state: TensorDictBase | None, ended: list[bool]) -> None:
        lanes, rows = self._lanes, self._rows
        slice_over = self._n_steps is not None and rows[0].length == self._n_steps
        goes_on = [at for at, end in enumerate(ended) if not end]
        root = self._root_after(td, state)
        restarted: list[int] = []
        if self._n_steps is not None and self.auto_reset and not self._segment.finishes:
            restarted = [at for at, end in enumerate(ended) if end]
            goes_on = list(range(len(lanes)))
            if restarted:
                again = [lanes[at] for at in restarted]
                fresh = self._fresh(again, again, self._info_of, self._env_info_of)
                root = root.copy()  # its levels are those of the step, which keeps what it has led to
                for key in root.keys(True, True):
                    value = root.get(key).clone()
                    value[_tensor(restarted)] = fresh.get(key)
                    root.set(key, value)
                for lane in again:
                    self._number(lane)
        kept = set(goes_on)
        for at, row in enumerate(rows):
            if at not in kept or slice_over:
                alive = self._n_steps is not None and at in kept
                self._finished.append((row, alive))
                self.record.end(row, alive)
                self.finished += 1
        free = [lanes[at] for at in range(len(lanes)) if at not in kept]
        carried: TensorDictBase | None = root
        if len(goes_on) < len(lanes):
            carried = root[_tensor(goes_on, dtype=torch.int64)] if goes_on else None
        self._lanes, self._rows = [lanes[at] for at in goes_on], [rows[at] for at in goes_on]
        self._carrier = carried
        if self._n_steps is not None:
            if slice_over or not self._lanes:
                self.live, self._root = self._lanes, carried
                self._lanes, self._rows, self._carrier = [], [], None
        elif free and self._waiting:
            self._enter(free)

    def _enter(self, free: list[int]) -> None:
        """Give rows that wait to lanes that have none."""
        places, self._waiting = self._waiting[: len(free)], self._waiting[len(free) :]
        lanes = free[: len(places)]
        fresh = self._fresh(lanes, places, self._segment.agent_info, self._segment.env_info)
        rows = []
        for lane, place in zip(lanes, places, strict=True):
            self._number(lane)
            assert self._segment.rows is not None
            rows.append(self._row(place, lane, self._segment.rows[place]))
        self._states(rows, fresh)
        if self._carrier is None:
            self._lanes, self._rows, self._carrier = lanes, rows, fresh
            return
        order = sorted(range(len(self._lanes) + len(lanes)), key=[*self._lanes, *lanes].__getitem__)
        joined = cat_tds([self._carrier.select(*fresh.keys()), fresh])
        self._carrier = joined[_tensor(order)]
        self._lanes = [[*self._lanes, *lanes][at] for at in order]
        self._rows = [[*self._rows, *rows][at] for at in order]

    def _row(self, place: int, lane: int, number: int) -> Row:
        return Row(place, number, lane + self.first_lane, lane, self._episode_of[lane])

    def _number(self, lane: int) -> None:
        self._episode_of[lane] = self.episodes
        self._steps_of[lane] = 0
        self.episodes += 1

    def _states(self, rows: list[Row], root: TensorDictBase) -> None:
        state = root.get("agent_state", None)
        if state is not None and self.store_agent_state != "none":
            for at, row in enumerate(rows):
                row.state = state[at]

    # -- the policy and the environment ---------------------------------------------------------------------------

    @torch.no_grad()
    def _fresh(
        self, lanes: list[int], places: list[int], agent_info: TensorDict | None, env_info: TensorDict | None
    ) -> TensorDictBase:
        """Begin episodes in some lanes; returns their roots ``[k]``, with infos and state."""
        env = self.env
        told = None if env_info is None else env_info[_tensor(places)]
        if not env.batch_dims:
            one = None if told is None else told[0]
            root = env.reset(env_info=one).unsqueeze(0) if one is not None else env.reset().unsqueeze(0)
        elif len(lanes) == self.n:
            root = env.reset(env_info=told) if told is not None else env.reset()
        else:
            root = env.reset_at(None, lanes, env_info=told)
        root = root.copy()
        root.batch_size = torch.Size([len(lanes)])
        if "is_init" not in root.keys():
            root.set("is_init", torch.ones(len(lanes), 1, dtype=torch.bool, device=CPU))
        if agent_info is not None:
            root.set("agent_info", agent_info[_tensor(places)])
        if told is not None:
            root.set("env_info", told)
        self._agent_state.begin(root)
        return root

    def _acted(self, carrier: TensorDictBase, lanes: list[int]) -> tuple[TensorDictBase, TensorDictBase | None]:
        """The step of some lanes ``[k]``, and the agent's next state."""
        env = self.env
        td = carrier.copy()
        if isinstance(self.act, RandomActions):
            td = self.act.write_rows(td, lanes)
        elif self._checked:
            td = self._called(td, lanes)
        else:
            td = first_call(
                self._name,
                self.policy,
                lambda data: self._called(data, lanes),
                td,
                protected=None,
                trusted=self._trusted,
            )
            self._check_next(td)
            self._checked = True
        state = self._agent_state.next_state(td)
        if "next" in td.keys():
            td = td.exclude(("next", "agent_state"))
            if td.get("next").is_empty():
                td = td.exclude("next")
        if not env.batch_dims:
            one = env.step(td[0])
            td.set("next", one.get("next").unsqueeze(0))
        elif len(lanes) == self.n:
            td = env.step(td)
        else:
            td = env.step_at(td, lanes)
        return td, state

    def _called(self, td: TensorDictBase, lanes: list[int]) -> TensorDictBase:
        """The data of some lanes with what the policy writes."""
        if not self.compact:
            return self._all_lanes(td, lanes)
        acted = self.act(td)
        if acted is td:
            return td
        if not isinstance(acted, TensorDictBase):
            raise PolicyError(f"The policy must return a TensorDict, found {type(acted).__name__}.")
        return td.update(acted)

    def _check_next(self, td: TensorDictBase) -> None:
        """Refuse entries under ``next`` that the step after this one would not see.

        Raises:
            PolicyError: the policy has written one.
        """
        following = td.get("next", None)
        if following is None:
            return
        known = {*self.env.state_keys, *self.env.observation_keys}
        lost = [key for key in following.keys(True, True) if key not in known and key[0] != "agent_state"]
        if lost:
            raise PolicyError(
                f"The policy writes {below_next(lost[0])!r}, which is there at its next step only if it is there at a "
                "reset too: append a TensorDictPrimer with it to the environment, or declare agent_state_spec."
            )

    def _truncate(self, td: TensorDictBase, ended: torch.Tensor) -> torch.Tensor:
        late = _tensor([self._steps_of[row.own_lane] >= (self.max_steps or 0) for row in self._rows]) & ~ended
        if not bool(late.any()):
            return ended
        following = td.get("next")
        for group in self._limited:
            for name in ("truncated", "done"):
                value = following.get(group.key(name)).clone()
                value[late] = True
                following.set(group.key(name), value)
        return ended | late

    def _root_after(self, td: TensorDictBase, state: TensorDictBase | None) -> TensorDictBase:
        """The root of the step after this one, for rows that go on."""
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
        """Take the rows that have ended since the last time, in their order; None where there are none."""
        taken, self._finished = sorted(self._finished, key=lambda each: each[0].place), []
        if not taken:
            return None
        rows, segment = [row for row, _ in taken], self._segment
        steps = self.record.take(rows, self._rows)
        slices = segment.rows is None
        places = _tensor([row.own_lane if slices else row.place for row in rows])
        agent_info = self._info_of if slices else segment.agent_info
        env_info = self._env_info_of if slices else segment.env_info
        states = [row.state for row in rows]
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
            agent_state=None if states[0] is None else torch.stack(states),
            batch_size=size,
        )

    # -- what a step holds ----------------------------------------------------------------------------------------

    def _columns(self, frame: TensorDictBase) -> Columns | None:
        if self.env.has_dynamic_specs or isinstance(frame, LazyStackedTensorDict):
            return None
        row = frame[0]
        if not all(isinstance(value, torch.Tensor) for value in row.values(True, True)):
            return None
        spec, first = make_composite_from_td(row, unsqueeze_null_shapes=False), self._rows[0].state
        states = Composite({}) if first is None else make_composite_from_td(first, unsqueeze_null_shapes=False)
        return None if storage_problem(spec) is not None else Columns(spec, states)

    def _framed(self, td: TensorDictBase, state: TensorDictBase | None) -> TensorDictBase:
        """What is kept of a step."""
        hidden = ["agent_info", "env_info", "collector"] + ([] if self.store_agent_state == "all" else ["agent_state"])
        frame = without_private(td, self._declared).exclude(*hidden)
        if state is not None and self.store_agent_state == "all":
            following = frame.get("next").copy()
            following.set("agent_state", state)
            frame.set("next", following)
        return frame


class _Taken(NamedTuple):
    """A step that was taken: its data, the agent's next state, which rows have ended, and what is kept of it."""

    td: TensorDictBase
    state: TensorDictBase | None
    ended: torch.Tensor
    frame: TensorDictBase


def _tensor(values: Any, *, dtype: torch.dtype | None = None) -> torch.Tensor:
    return torch.tensor(values, dtype=dtype, device=CPU)
