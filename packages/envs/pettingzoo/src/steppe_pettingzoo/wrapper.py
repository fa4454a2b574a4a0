"""PettingZooWrapper: wrap an environment object of PettingZoo."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from tensordict import TensorDictBase

from steppe.envs import LibraryWrapper, as_flag, as_numbers, system_seed
from steppe.errors import NotSupported, SpecError, StateError
from steppe.registry import AvailableEnvs
from steppe.specs import Binary, Composite, Spec, Unbounded
from steppe.storage import build_td
from steppe_gym import SpaceReader, space_to_spec
from steppe_multi_agent import GroupMap, MarlGroupMapType, group_agents

from .agent import Agent
from .api_adapters import AECAdapter, Outcome, ParallelAdapter
from .group import AgentGroup
from .names import available_names

__all__ = ["PettingZooWrapper"]

_FLAGS = ("done", "terminated", "truncated")


class PettingZooWrapper(LibraryWrapper):
    """Wrap an environment of PettingZoo, parallel or turn-based (AEC).

    Agents are divided into groups. The data of a group of m agents is stacked:

    =============================  ================================================================================
    Key                            Value
    =============================  ================================================================================
    ``(group, "observation")``     ``[m, ...]`` in the dtype of the space; entries of a Dict are nested below it
    ``(group, "action")``          ``[m]`` integers for discrete actions, ``[m, n]`` one-hot vectors with
                                   ``categorical_actions=False``, ``[m, k]`` for a Box
    ``(group, "action_mask")``     ``[m, n]`` bool, if the library provides action masks; True for agents that do not
                                   act
    ``(group, "mask")``            ``[m]`` bool, with ``use_mask``: which agents act next
    ``(group, "info", name)``      numbers of the infos that the first reset returns
    ``(group, "reward")``          ``[m, 1]`` float32
    ``(group, "done")``            ``[m, 1]`` bool, with ``"terminated"`` and ``"truncated"``, of each agent
    ``"done"``                     ``[1]`` bool, with ``"terminated"`` and ``"truncated"``, of the episode
    ``"state"``                    the global state of the library, with ``return_state``
    =============================  ================================================================================

    Agents of a group whose observations differ are stacked lazily (``StackedComposite``).

    In a parallel environment, all agents that are alive act in each step. In a turn-based one, each step is the action
    of one agent, whose ``"mask"`` is True; the actions of other agents are ignored. After an agent has ended, its
    observations and rewards are zero, and its done entries keep their values.

    The action masks are declared as :attr:`action_masks`, so random actions (``rand_action``, ``rollout`` without a
    policy) respect those in the data.

    Args:
        env: the environment.
        return_state: add the global state of the library to the data.
        group_map: ``{group: [agents]}``, a :class:`~steppe.MarlGroupMapType`, or None. With None, each agent of a
            turn-based environment forms a group, and agents of a parallel environment named ``"<name>_<number>"`` are
            grouped by name.
        use_mask: add ``"mask"``. ``None``: add it to turn-based environments, which need it. Parallel environments need
            it if agents may end before the episode does.
        categorical_actions: discrete actions are integers instead of one-hot vectors.
        seed: seed of the first reset.
        done_on_any: True ends the episode with the first agent that ends, False with the last. ``None``: True for
            parallel environments, False for turn-based ones.
        device: device of the data. The library always computes on the CPU.
        **kwargs: for :class:`steppe.EnvBase`.

    Attributes:
        group_map: ``{group: [agents]}``.
        parallel: whether all agents act at the same time.
        possible_agents: the names of all agents.

    Raises:
        SpecError: ``group_map`` does not fit the agents.
        NotSupported: ``use_mask=False`` for a turn-based environment; ``done_on_any=False`` without ``use_mask=True``
            for several agents that act at once; or a space that has no tensor layout.
    """

    git_url = "https://github.com/Farama-Foundation/PettingZoo"
    libname = "pettingzoo"
    available_envs = AvailableEnvs(available_names)
    """The names of the library's environments; empty if the library is not installed."""

    def __init__(
        self,
        env: Any,
        *,
        return_state: bool = False,
        group_map: GroupMap = None,
        use_mask: bool | None = None,
        categorical_actions: bool = True,
        seed: int | None = None,
        done_on_any: bool | None = None,
        device: torch.device | str | int | None = None,
        **kwargs: Any,
    ) -> None:
        from pettingzoo import AECEnv, ParallelEnv

        if not isinstance(env, AECEnv | ParallelEnv):
            raise TypeError(
                f"PettingZooWrapper wraps an AECEnv or a ParallelEnv of PettingZoo, found {env!r}. To make one by its "
                "name, call PettingZooEnv('butterfly/pistonball_v6')."
            )
        parallel = isinstance(env, ParallelEnv)
        if use_mask is False and not parallel:
            raise NotSupported(
                "A turn-based environment needs the entry 'mask', which says whose turn it is: leave use_mask=False "
                "out."
            )
        if parallel and done_on_any is False and not use_mask and len(env.possible_agents) > 1:
            raise NotSupported(
                "With done_on_any=False, agents may end before the episode does, and only the entry 'mask' says which "
                "of them still act: add use_mask=True, or leave done_on_any=False out."
            )
        if kwargs.get("batch_size"):
            raise NotSupported(
                "PettingZooWrapper takes no batch_size. For a batch, call ParallelEnv(n, 'pettingzoo:...')."
            )
        super().__init__(device=device, **{"allow_done_after_reset": True, **kwargs})
        self.wrap_library(env)
        state = self.__dict__
        state["parallel"] = parallel
        state["return_state"] = return_state
        state["use_mask"] = (not parallel) if use_mask is None else use_mask
        state["categorical_actions"] = categorical_actions
        state["done_on_any"] = parallel if done_on_any is None else done_on_any
        state["possible_agents"] = list(env.possible_agents)
        state["_api"] = ParallelAdapter(env) if parallel else AECAdapter(env)
        state["_pending_seed"] = None
        state["_ended"] = {}
        state["group_map"] = self._groups_of(group_map)
        self._make_specs()
        if seed is not None:
            self.set_seed(seed)

    def _groups_of(self, group_map: GroupMap) -> dict[str, list[str]]:
        names = self.possible_agents
        if group_map is not None:
            return group_agents(group_map, names)
        if not self.parallel:
            return MarlGroupMapType.ONE_GROUP_PER_AGENT.get_group_map(names)
        groups: dict[str, list[str]] = {}
        for name in names:
            group, _, number = name.rpartition("_")
            groups.setdefault(group if group and number.isdecimal() else name, []).append(name)
        return groups

    # -- specs ----------------------------------------------------------------------------------------------------

    def _make_specs(self) -> None:
        env, device = self._env, self.device
        infos = self._api.reset(None, None).infos
        state = self.__dict__
        state["groups"] = [
            AgentGroup(
                group,
                [
                    Agent(
                        name,
                        env.observation_space(name),
                        env.action_space(name),
                        infos.get(name, {}),
                        categorical=self.categorical_actions,
                        use_mask=self.use_mask,
                        device=device,
                    )
                    for name in names
                ],
                device,
            )
            for group, names in self.group_map.items()
        ]
        state["_index"] = {
            agent.name: (group, i, agent) for group in self.groups for i, agent in enumerate(group.agents)
        }
        observation: dict[str, Spec] = {group.name: group.observation_spec for group in self.groups}
        if self.return_state:
            if "state" in observation:
                raise SpecError(
                    "return_state=True writes the entry 'state', which is also the name of a group: rename the group."
                )
            observation["state"] = self._state_spec()
        flag = Binary(shape=(1,), dtype=torch.bool, device=device)
        done: dict[str, Spec] = {name: flag.clone() for name in _FLAGS}
        self.observation_spec = Composite(observation, device=device)
        self.action_spec = Composite({group.name: group.action_spec for group in self.groups}, device=device)
        self.reward_spec = Composite({group.name: group.reward_spec for group in self.groups}, device=device)
        self.done_spec = Composite({**done, **{group.name: group.done_spec for group in self.groups}}, device=device)
        self.action_masks = {
            (group.name, "action"): (group.name, "action_mask") for group in self.groups if group.has_action_masks
        }

    def _state_spec(self) -> Spec:
        space = getattr(self._env, "state_space", None)
        if space is not None:
            spec = space_to_spec(space, device=self.device)
            self.__dict__["_state_reader"] = SpaceReader(space, spec, key="state")
            return spec
        try:
            example = np.asarray(self._env.state())
        except (AttributeError, NotImplementedError):
            raise NotSupported(f"{self!r} has no state: leave out return_state=True.") from None
        self.__dict__["_state_reader"] = None
        return Unbounded(shape=example.shape, dtype=torch.from_numpy(example).dtype, device=self.device)

    # -- the contract ---------------------------------------------------------------------------------------------

    def _reset(self, tensordict: TensorDictBase | None = None, **kwargs: Any) -> TensorDictBase:
        if not {"options"}.issuperset(kwargs):
            raise TypeError(
                f"reset takes only 'options', found {sorted(kwargs)}. To seed the environment, call env.set_seed(seed)."
            )
        if tensordict is not None:
            for key in tensordict.keys(include_nested=True, leaves_only=True):
                last = key if isinstance(key, str) else key[-1]
                if last == "_reset" and not bool(tensordict.get(key).all()):
                    raise NotSupported(
                        f"PettingZoo cannot reset only some agents, as the mask {key!r} requests: reset all agents."
                    )
        seed, self.__dict__["_pending_seed"] = self._pending_seed, None
        outcome = self._api.reset(seed, kwargs.get("options"))
        self.__dict__["_ended"] = {}
        return self._data(outcome, ())

    def _step(self, tensordict: TensorDictBase) -> TensorDictBase:
        before = list(self._env.agents)
        if not before:
            raise StateError("All agents have ended: call env.reset() before the next step.")
        group_actions: dict[str, list[Any]] = {}

        def action_of(name: str) -> Any:
            group, i, agent = self._index[name]
            if group.name not in group_actions:  # read only groups with an acting agent
                group_actions[group.name] = group.actions(tensordict)
            return agent.library_action(group_actions[group.name][i])

        return self._data(self._api.step(action_of), before)

    def _data(self, outcome: Outcome, before: Sequence[str]) -> TensorDictBase:
        """Build the data of a reset or a step.

        Args:
            outcome: the values of the library.
            before: the agents that were alive before the step; empty for a reset.
        """
        stepped = bool(before)
        alive = outcome.observations
        ended = self._ended
        for name, terminated in outcome.terminated.items():
            flags = terminated, outcome.truncated[name]
            ended[name] = flags if type(flags[0]) is type(flags[1]) is bool else self._flags_of(name, *flags)
        some_ended = any(terminated or truncated for terminated, truncated in ended.values())
        if not self.use_mask and len(alive) < len(self.possible_agents):
            ended_agents = [name for name in self.possible_agents if name not in alive]
            raise StateError(
                f"The agents {ended_agents} have ended, and with them the episode: reset the environment. If the other "
                "agents should go on, make it with use_mask=True, done_on_any=False."
            )
        data: dict[str, Any] = {}
        acting = set(outcome.acting)
        for group in self.groups:
            rows, n = group.rows, len(group.agents)
            rows.clear()
            extra: dict[str, np.ndarray] = {name: np.zeros((n, 1), bool) for name in _FLAGS}
            if stepped:
                extra["reward"] = self._rewards(group, outcome.rewards)
            for i, agent in enumerate(group.agents):
                name, out = agent.name, rows.views[i]
                acts = name in acting
                if name in alive:
                    try:
                        agent.write(alive[name], outcome.infos.get(name) or {}, out, acts=acts)
                    except SpecError as error:
                        raise SpecError(f"{self!r}.{'step' if stepped else 'reset'}, agent {name!r}: {error}") from None
                elif agent.has_action_mask:
                    out["action_mask"][...] = True
                if self.use_mask:
                    out["mask"][...] = acts
                if some_ended:
                    terminated, truncated = ended.get(name, (False, False))
                    extra["terminated"][i], extra["truncated"][i] = terminated, truncated
                    extra["done"][i] = terminated or truncated
            data[group.name] = rows.data(extra)
        if self.return_state:
            data["state"] = self._to_device(self._state())
        done, terminated, truncated = self._episode_flags() if some_ended else (False, False, False)
        for name, flag in zip(_FLAGS, (done, terminated, truncated), strict=True):
            data[name] = self._to_device(torch.from_numpy(np.array([flag])))
        return build_td(data, self.batch_size, self.device)

    def _flags_of(self, name: str, terminated: object, truncated: object) -> tuple[bool, bool]:
        """Convert the flags of an agent if they are not both bools."""
        try:
            return as_flag("terminated", terminated), as_flag("truncated", truncated)
        except SpecError as error:
            raise SpecError(f"{self!r}.step, agent {name!r}: {error}") from None

    def _rewards(self, group: AgentGroup, by_agent: Mapping[str, object]) -> np.ndarray[Any, np.dtype[np.float32]]:
        """Convert the rewards of a group to ``[agents, 1]`` float32.

        Each reward is a number, or an array of one number.
        """
        values = [by_agent.get(agent.name, 0.0) for agent in group.agents]
        rewards = np.zeros((len(values), 1), np.float32)
        try:
            rewards[:, 0] = as_numbers("reward", values)  # a fifth of the time of one call for each agent
        except ValueError:  # some rewards are arrays, or not numbers
            for i, (agent, value) in enumerate(zip(group.agents, values, strict=True)):
                try:
                    rewards[i] = as_numbers("reward", value, (1,))
                except SpecError as error:
                    raise SpecError(f"{self!r}.step, agent {agent.name!r}: {error}") from None
        return rewards

    def _to_device(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor if self.device is None else tensor.to(self.device)

    def _episode_flags(self) -> tuple[bool, bool, bool]:
        """Return done, terminated and truncated of the episode.

        They are computed from the flags of the agents.
        """
        flags = [self._ended.get(name, (False, False)) for name in self.possible_agents]
        if self.done_on_any:
            terminated, truncated = any(t for t, _ in flags), any(t for _, t in flags)
            return terminated or truncated, terminated, truncated
        done = all(t or u for t, u in flags)
        # If some agents terminated and others were truncated, the episode counts as truncated.
        return done, done and all(t for t, _ in flags), done and any(u for _, u in flags)

    def _state(self) -> torch.Tensor:
        value = self._env.state()
        if self._state_reader is not None:
            read: torch.Tensor = next(iter(self._state_reader.read(value).values()))
            return read
        return torch.from_numpy(np.array(value))

    def _set_seed(self, seed: int | None) -> None:
        # Without a seed, the library would continue from the last one.
        self.__dict__["_pending_seed"] = system_seed() if seed is None else seed

    # -- the library ---------------------------------------------------------------------------------------------

    @property
    def lib(self) -> Any:
        """The module ``pettingzoo``."""
        import pettingzoo

        return pettingzoo

    @property
    def agents(self) -> list[str]:
        """The agents that are alive."""
        return list(self._env.agents)

    def render(self) -> Any:
        """Call the library's ``render``.

        For frames, make the environment with ``render_mode="rgb_array"``.
        """
        return self._env.render()

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in super().__getstate__().items() if name != "_state_reader"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)  # type: ignore[no-untyped-call]
        self.__dict__["_state_reader"] = None
        if self.return_state and getattr(self._env, "state_space", None) is not None:
            self._state_spec()  # makes the state reader again, whose functions cannot be pickled

    def __repr__(self) -> str:
        label = self.__dict__.get("task_name") or str(self.__dict__.get("_env"))
        return f"{type(self).__name__}({label}, groups={list(self.__dict__.get('group_map', ()))})"
