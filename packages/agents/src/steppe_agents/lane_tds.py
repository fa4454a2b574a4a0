"""LaneTds: step the lanes of a segment on TensorDicts."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch
from tensordict import LazyStackedTensorDict, TensorDict, TensorDictBase

from steppe.collectors import first_call
from steppe.envs import RandomActions, done_groups, rows_ended, with_written, without_private
from steppe.errors import NotSupported, PolicyError, SpecError
from steppe.specs import CPU, Composite, below_next, make_composite_from_td
from steppe.storage import no_storage_reason
from steppe_agents.padded_call import PaddedCall
from steppe_agents.protected_entries import ProtectedEntries
from steppe_agents.slots import Columns

if TYPE_CHECKING:
    from steppe_agents.lanes import Lanes

__all__ = ["TRAJ_IDS", "LaneStep", "LaneTds"]

#: The number of the episode of each step, which is stored if a row may have several episodes.
TRAJ_IDS = ("collector", "traj_ids")


class LaneStep(NamedTuple):
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


class LaneTds:
    """Begin episodes in lanes and step them on TensorDicts, in any environment.

    Args:
        lanes: the lanes, which have the state of the segment.
        name: name of the collector, for errors.
        trusted: do not convert errors of the policy's first call to PolicyError.
    """

    def __init__(self, lanes: Lanes, *, name: str, trusted: bool) -> None:
        self._lanes, self.env, self._name, self._trusted = lanes, lanes.env, name, trusted
        self._groups = done_groups(lanes.env.full_done_spec)
        self._limited = [group for group in self._groups if "truncated" in group.names]
        if lanes.max_steps is not None and not self._limited:
            raise SpecError("max_steps= needs a 'truncated' entry in the done spec: env.add_truncated_keys() adds one.")
        self._padded_call = PaddedCall(lambda td: lanes.act(td), lanes.n)
        self._checked = False

    def clear_cache(self) -> None:
        """Drop the data of idle lanes."""
        self._padded_call.clear_cache()

    def step(self) -> LaneStep:
        """Step the policy and the environment once in all active lanes, without storing the data."""
        root = self._lanes.next_root
        assert root is not None
        td, state = self._acted(root, self._lanes.active)
        ended = rows_ended(td.get("next"), self._groups)
        if self._lanes.max_steps is not None:
            ended = self._truncate(td, ended)
        return LaneStep(td, root.get("agent_state", None), state, ended, self._framed(td, state))

    @torch.no_grad()
    def begin(
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
        infos = None if env_info is None else env_info[torch.tensor(places, device=CPU)]
        if not env.batch_dims:
            root = (env.reset(env_info=infos[0]) if infos is not None else env.reset()).unsqueeze(0)
        elif len(lanes) == self._lanes.n:
            root = env.reset(env_info=infos) if infos is not None else env.reset()
        elif self._lanes.resets_whole:  # the other lanes are idle, and their data is dropped
            every = places + places[:1] * (self._lanes.n - len(places))
            wide = None if env_info is None else env_info[torch.tensor(every, device=CPU)]
            root = (env.reset(env_info=wide) if wide is not None else env.reset())[torch.tensor(lanes, device=CPU)]
        else:
            root = env.reset_at(None, lanes, env_info=infos)
        root = root.copy()
        root.batch_size = torch.Size([len(lanes)])
        if "is_init" not in root.keys():
            root.set("is_init", torch.ones(len(lanes), 1, dtype=torch.bool, device=CPU))
        if agent_info is not None:
            root.set("agent_info", agent_info[torch.tensor(places, device=CPU)])
        if infos is not None:
            root.set("env_info", infos)
        self._lanes.agent_state.begin(root)
        if self._lanes.history is not None:
            self._lanes.history.begin(lanes)
        return root

    def _acted(self, root: TensorDictBase, lanes: list[int]) -> tuple[TensorDictBase, TensorDictBase | None]:
        """Return the step of some lanes ``[k]``, and the agent's next state."""
        env = self.env
        td = root.copy()
        if self._lanes.history is not None:
            td.set("history", self._lanes.history.of(lanes))
        if isinstance(self._lanes.act, RandomActions):
            td = self._acted_at_random(self._lanes.act, td, lanes)
        elif self._checked:
            td = self._called(td, lanes)
        else:
            protected = ProtectedEntries(td, of_env=True)
            td = first_call(
                self._name, self._lanes.policy, lambda data: self._called(data, lanes), td, trusted=self._trusted
            )
            protected.check(self._lanes.policy, td)
            self._check_next(td)
            self._checked = True
        state = self._lanes.agent_state.next_state(td)
        td = td.exclude("history")
        if "next" in td.keys():
            td = td.exclude(("next", "agent_state"))
            if td.get("next").is_empty():
                td = td.exclude("next")
        if not env.batch_dims:
            stepped = env.step(td[0])
            for key in (*env.action_keys, "next"):  # the actions too, which are in the dtypes of their specs now
                td.set(key, stepped.get(key).unsqueeze(0))
        elif len(lanes) == self._lanes.n:
            td = env.step(td)
        else:
            td = self._stepped_at(td, lanes)
        if self._lanes.history is not None:
            self._lanes.history.add(td, lanes)
        return td, state

    def _stepped_at(self, td: TensorDictBase, lanes: list[int]) -> TensorDictBase:
        """Step some lanes of the batch.

        Batches that step only as a whole raise NotSupported before they step. All of their lanes are stepped, the idle
        ones with the action of another lane, and the data of the idle lanes is dropped.
        """
        if not self._lanes.steps_whole:
            try:
                return self.env.step_at(td, lanes)
            except NotSupported:
                self._lanes.steps_whole = True
        places = torch.zeros(self._lanes.n, dtype=torch.int64, device=CPU)
        places[torch.tensor(lanes, device=CPU)] = torch.arange(len(lanes), device=CPU)
        return self.env.step(td[places])[torch.tensor(lanes, device=CPU)]

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
        return env.rand_action(td) if len(lanes) == self._lanes.n else env.rand_action_at(td, lanes)

    def _called(self, td: TensorDictBase, lanes: list[int]) -> TensorDictBase:
        """Return the data of some lanes with the output of the policy."""
        if not self._lanes.compact:
            return self._padded_call(td, lanes)
        return with_written(td, self._lanes.act(td))

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
        steps = self._lanes.steps + 1 - self._lanes.episode_begun[self._lanes.active]
        over_limit = torch.from_numpy(steps >= (self._lanes.max_steps or 0)) & ~ended
        if not bool(over_limit.any()):
            return ended
        following = td.get("next")
        for group in self._limited:
            for name in ("truncated", "done"):
                value = following.get(group.key(name)).clone()
                value[over_limit] = True
                following.set(group.key(name), value)
        return ended | over_limit

    def root_after(self, td: TensorDictBase, state: TensorDictBase | None) -> TensorDictBase:
        """Return the root of the next step, for rows that continue."""
        env = self.env
        root = env.step_mdp(td.exclude("agent_info", "env_info", "agent_state", "is_init"))
        root = root.select(*env.observation_keys, *env.done_keys, *env.state_keys, strict=False)
        if "is_init" not in root.keys():
            root.set("is_init", torch.zeros(len(self._lanes.active), 1, dtype=torch.bool, device=CPU))
        for name in ("agent_info", "env_info"):
            value = td.get(name, None)
            if value is not None:
                root.set(name, value)
        if state is not None:
            root.set("agent_state", state)
        return root

    def _framed(self, td: TensorDictBase, state: TensorDictBase | None) -> TensorDictBase:
        """Return the entries of a step that are stored."""
        hidden = ["agent_info", "env_info", "collector"] + (
            [] if self._lanes.store_agent_state == "all" else ["agent_state"]
        )
        frame = without_private(td, self._lanes.declared).exclude(*hidden)
        if state is not None and self._lanes.store_agent_state == "all":
            following = frame.get("next").copy()
            following.set("agent_state", state)
            frame.set("next", following)
        if self._lanes.auto_reset:
            frame.set(TRAJ_IDS, torch.from_numpy(self._lanes.episode_of[self._lanes.active]))
        return frame

    def columns(self, frame: TensorDictBase) -> Columns | None:
        """Return the layout of a step.

        Returns None if it may change from step to step, or has entries that are not tensors.
        """
        if self.env.has_dynamic_specs or isinstance(frame, LazyStackedTensorDict):
            return None
        row = frame[0]
        if not all(isinstance(value, torch.Tensor) for value in row.values(True, True)):
            return None
        spec, states = make_composite_from_td(row, unsqueeze_null_shapes=False), Composite({})
        if self._lanes.agent_state.keys and self._lanes.store_agent_state != "none":
            states = self._lanes.agent_state.spec
        return None if no_storage_reason(spec) is not None else Columns(spec, states)
