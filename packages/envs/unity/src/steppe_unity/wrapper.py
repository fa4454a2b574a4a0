"""UnityMLAgentsWrapper: wrap an environment of Unity ML-Agents."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from tensordict import TensorDictBase

from steppe.envs import LibraryWrapper, Progress, Rows, RowSteps
from steppe.errors import NotSupported, SpecError
from steppe.specs import Binary, Bounded, Composite, MultiCategorical, MultiOneHot, Spec, Unbounded, is_host
from steppe.storage import TensorDictBuilder
from steppe_multi_agent import GroupMap, MarlGroupMapType, group_agents

from .agent_group import AgentGroup
from .behavior import Behavior
from .game_writer import Actions, GameWriter

__all__ = ["UnityMLAgentsWrapper"]

_FLAGS = ("done", "terminated", "truncated")
_REWARDS = ("reward", "group_reward")


class UnityMLAgentsWrapper(LibraryWrapper):
    """Wrap an environment of Unity ML-Agents, a ``UnityEnvironment`` or another ``BaseEnv``.

    The agents of one behavior are stacked in one group, which has the name of the behavior. For m agents:

    ================================  ================================================================================
    Key                               Value
    ================================  ================================================================================
    ``(group, "observation", name)``  ``[m, *shape]`` float32, one entry for each sensor
    ``(group, "mask")``               ``[m]`` bool: the agents that decide next; the actions of others are ignored
    ``(group, "action_mask")``        ``[m, n]`` bool: the allowed values of all discrete branches, one branch after the
                                      other; all True for agents that do not decide
    ``(group, "continuous_action")``  ``[m, k]`` float32 in [-1, 1]
    ``(group, "discrete_action")``    ``[m, n]`` one-hot rows of all branches, or ``[m, branches]`` int64 with
                                      ``categorical_actions``
    ``(group, "reward")``             ``[m, 1]`` float32, with ``"group_reward"``
    ``(group, "done")``               ``[m, 1]`` bool, with ``"terminated"`` and ``"truncated"`` (Unity's
                                      ``interrupted``), of each agent
    ================================  ================================================================================

    Each agent ends on its own; there are no done entries of the game. Unity lets an agent that has ended begin again in
    the same step. Its last observation is in ``next``; the first one of its new episode is returned by its reset, which
    leaves the game alone. Only a reset of agents in the middle of their episodes resets the game, and must be one of
    all agents. An agent that does not decide keeps its last observation, and has reward 0.

    >>> from mlagents_envs.environment import UnityEnvironment
    >>> from steppe_unity import UnityMLAgentsWrapper
    >>> env = UnityMLAgentsWrapper(UnityEnvironment("build/game", no_graphics=True))
    >>> env.rollout(3, break_when_any_done=False).shape
    torch.Size([3])
    >>> env.close()

    Args:
        env: the environment.
        group_map: ``{group: [agents]}`` with agents of one behavior in each group, a
            :class:`~steppe.MarlGroupMapType`, or None for a group for each behavior. Agents are called
            ``"<behavior>_<place>"``.
        categorical_actions: discrete actions are integers instead of one-hot rows.
        device: device of the data.
        **kwargs: for :class:`steppe.EnvBase`.

    Attributes:
        group_map: ``{group: [agents]}``.
        agent_names: the names of all agents.
        behaviors: the agents of each behavior, by its name.
        groups: the agents of each group.

    Raises:
        TypeError: ``env`` is no environment of ML-Agents.
        SpecError: ``group_map`` does not fit the agents.
        NotSupported: a batch size was passed.
    """

    git_url = "https://github.com/Unity-Technologies/ml-agents"
    libname = "mlagents_envs"

    def __init__(
        self,
        env: Any,
        *,
        group_map: GroupMap = None,
        categorical_actions: bool = False,
        device: torch.device | str | int | None = None,
        **kwargs: Any,
    ) -> None:
        from mlagents_envs.base_env import BaseEnv

        if not isinstance(env, BaseEnv):
            raise TypeError(f"UnityMLAgentsWrapper wraps a UnityEnvironment or another BaseEnv, found {env!r}.")
        if kwargs.get("batch_size"):
            raise NotSupported("A Unity game has no batch_size. For a batch, call ParallelEnv(n, factory).")
        super().__init__(device=device, **kwargs)
        self.wrap_library(env)
        state = self.__dict__
        state["categorical_actions"] = categorical_actions
        env.reset()
        state["behaviors"] = {
            name: Behavior(name, spec, self._numbers(name)) for name, spec in env.behavior_specs.items()
        }
        state["_where"] = {
            f"{name}_{place}": (behavior, place)
            for name, behavior in self.behaviors.items()
            for place in range(behavior.size)
        }
        state["agent_names"] = list(self._where)
        state["group_map"] = self._groups_of(group_map)
        #: The game is at its beginning, which no reset has returned yet.
        state["_at_beginning"] = True
        self._make_specs()

    def _numbers(self, name: str) -> list[int]:
        decisions, terminals = self._env.get_steps(name)
        return sorted({*decisions.agent_id.tolist(), *terminals.agent_id.tolist()})

    def _groups_of(self, group_map: GroupMap) -> dict[str, list[str]]:
        if group_map is None:
            groups: dict[str, list[str]] = {}
            for name, (behavior, _) in self._where.items():
                groups.setdefault(behavior.name, []).append(name)
            return groups
        groups = group_agents(group_map, self.agent_names)
        for group, names in groups.items():
            behaviors = sorted({self._where[name][0].name for name in names})
            if len(behaviors) > 1:
                hint = " Leave group_map out." if isinstance(group_map, MarlGroupMapType) else ""
                raise SpecError(f"The group {group!r} has agents of several behaviors, {behaviors}.{hint}")
        return groups

    def _make_specs(self) -> None:
        device, attributes = self.device, self.__dict__
        kinds: dict[str, dict[str, Spec]] = {"observation": {}, "action": {}, "reward": {}, "done": {}}
        groups: list[AgentGroup] = []
        masks: dict[Any, Any] = {}
        for group, names in self.group_map.items():
            behavior, places = self._where[names[0]][0], [self._where[name][1] for name in names]
            groups.append(AgentGroup(group, behavior, places, one_hot=not self.categorical_actions))
            m = len(names)
            sensors = {name: Unbounded(shape=(m, *values.shape[1:])) for name, values in behavior.sensors.items()}
            observation: dict[str, Spec] = {
                "observation": Composite(sensors, shape=(m,)),
                "mask": Binary(shape=(m,), dtype=torch.bool),
            }
            actions: dict[str, Spec] = {}
            if behavior.continuous:
                actions["continuous_action"] = Bounded(-1.0, 1.0, shape=(m, behavior.continuous), dtype=torch.float32)
            if behavior.branches:
                sizes = list(behavior.branches)
                one: Spec = MultiCategorical(sizes) if self.categorical_actions else MultiOneHot(sizes)
                actions["discrete_action"] = one.expand(m, *one.shape)
                observation["action_mask"] = Binary(shape=(m, sum(sizes)), dtype=torch.bool)
                masks[group, "discrete_action"] = (group, "action_mask")
            kinds["observation"][group] = Composite(observation, shape=(m,))
            kinds["action"][group] = Composite(actions, shape=(m,))
            kinds["reward"][group] = Composite({name: Unbounded(shape=(m, 1)) for name in _REWARDS}, shape=(m,))
            flags = {name: Binary(shape=(m, 1), dtype=torch.bool) for name in _FLAGS}
            kinds["done"][group] = Composite(flags, shape=(m,))
        attributes["groups"] = groups
        for kind, spec in kinds.items():
            self.assign_spec(kind, Composite(spec) if device is None else Composite(spec).to(device))
        self.action_masks = masks

    # -- the game -------------------------------------------------------------------------------------------------

    def begin_game(self) -> None:
        """Begin all episodes."""
        if not self._at_beginning:
            self._env.reset()
        for name, behavior in self.behaviors.items():
            behavior.begin(self._env.get_steps(name)[0])
        self.__dict__["_at_beginning"] = False

    def begin_ended(self) -> None:
        """Begin the episodes of all agents that have ended, which Unity has done already."""
        for behavior in self.behaviors.values():
            behavior.ended.fill(False)

    def advance(self, actions: Actions) -> bool:
        """Send the actions of the agents that decide, and step the game.

        Args:
            actions: for each behavior the actions of all agents.

        Returns:
            Whether an agent has ended.

        Raises:
            ActionError: an agent that decides chooses a value that its branch does not have.
        """
        from mlagents_envs.base_env import ActionTuple

        env, behaviors = self._env, self.behaviors
        for name, behavior in behaviors.items():
            if at := behavior.deciding:
                continuous, discrete = (values[at] for values in actions[name])
                behavior.check_choices(discrete)
                env.set_actions(name, ActionTuple(continuous=continuous, discrete=discrete))
        env.step()
        self.__dict__["_at_beginning"] = False
        ended = [behavior.read(*env.get_steps(name)) for name, behavior in behaviors.items()]
        return any(ended)

    # -- rows of arrays -------------------------------------------------------------------------------------------

    def no_rows_reason(self) -> str | None:
        """Return why the game is not stepped on rows, or None if it is."""
        return None if is_host(self.device) else f"its data is on {self.device}."

    def make_row_writer(self) -> GameWriter:
        """Make the row writer of the game."""
        return GameWriter(self)

    # -- on TensorDicts -------------------------------------------------------------------------------------------

    def _reset(self, tensordict: TensorDictBase | None = None, **kwargs: Any) -> TensorDictBase:
        if kwargs:
            raise TypeError(f"{type(self).__name__}.reset does not take {sorted(kwargs)}.")
        if self._resets_game(tensordict):
            self.begin_game()
        writer = self.cached("game_writer", self.make_row_writer)
        rows = Rows.new(writer.layout)
        writer.bind(rows, Progress()).write_root()
        build = TensorDictBuilder(writer.layout.root_spec)
        built = build({key: torch.from_numpy(array[0]) for key, array in rows.root.items()})
        return built if self.device is None else built.to(self.device)

    def _resets_game(self, tensordict: TensorDictBase | None) -> bool:
        """Whether the game is reset, rather than agents that have ended and begin again by themselves."""
        if self._at_beginning or tensordict is None:
            return True
        masks = [tensordict.get((group.name, "_reset"), None) for group in self.groups]
        if all(mask is None for mask in masks):
            return True
        chosen = [
            (group, np.ones(group.size, bool) if mask is None else mask.reshape(-1).cpu().numpy())
            for group, mask in zip(self.groups, masks, strict=True)
        ]
        running = [
            name
            for group, wanted in chosen
            for name, is_wanted, ended in zip(self.group_map[group.name], wanted, group.ended, strict=True)
            if is_wanted and not ended
        ]
        if not running:
            for group, wanted in chosen:
                group.begin(wanted)
            return False
        if all(wanted.all() for _, wanted in chosen):
            return True
        raise NotSupported(
            f"Unity cannot reset only some agents in the middle of their episodes, as the masks request for {running}: "
            "reset all agents, or those that have ended."
        )

    def _step(self, tensordict: TensorDictBase) -> TensorDictBase:
        # A subclass or an instance may override _step and call this one, so there may be no row_steps.
        steps = self.cached("forced_steps", lambda: RowSteps(self.make_row_writer()))
        if self.device is None:
            return steps.step(tensordict)
        return steps.step(tensordict.select(*self.action_keys).to("cpu")).to(self.device)

    def _set_seed(self, seed: int | None) -> None:
        raise NotSupported(
            "Unity seeds a game only when it is started, and this one was started outside of steppe. Start it with "
            "UnityEnvironment(..., seed=...), or use UnityMLAgentsEnv."
        )

    @property
    def lib(self) -> Any:
        """The module ``mlagents_envs``."""
        import mlagents_envs

        return mlagents_envs

    def __repr__(self) -> str:
        label = self.__dict__.get("game") or type(self.__dict__.get("_env")).__name__
        return f"{type(self).__name__}({label!r}, groups={list(self.__dict__.get('group_map', ()))})"
