"""PettingZooWrapper: wrap an environment object of PettingZoo."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from tensordict import TensorDictBase

from steppe.envs import ArrayEnv, LibraryWrapper, as_flag, write_row
from steppe.errors import NotSupported, SpecError, StateError
from steppe.registry import AvailableEnvs
from steppe.specs import Binary, Composite, Spec, Unbounded
from steppe.storage import build_td
from steppe_gym import SpaceReader, space_to_spec
from steppe_multi_agent import AgentRows, GroupMap, MarlGroupMapType, group_agents

from .agent import Agent
from .api_adapters import AECAdapter, Outcome, ParallelAdapter
from .group import AgentGroup
from .names import available_names

__all__ = ["PettingZooWrapper"]

_FLAGS = ("done", "terminated", "truncated")


class PettingZooWrapper(LibraryWrapper, ArrayEnv):
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

    >>> from pettingzoo.classic import tictactoe_v3
    >>> from steppe_pettingzoo import PettingZooWrapper
    >>> env = PettingZooWrapper(tictactoe_v3.env())
    >>> list(env.group_map), env.rollout(3)["player_1", "mask"].flatten()
    (['player_1', 'player_2'], tensor([ True, False,  True]))

    Args:
        env: the environment.
        return_state: add the global state of the library to the data.
        group_map: ``{group: [agents]}``, a :class:`~steppe.MarlGroupMapType`, or None. With None, each agent of a
            turn-based environment forms a group, and agents of a parallel environment named ``"<name>_<number>"`` are
            grouped by name; a single group ``"agent"`` is called ``"agents"``.
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
        return_state: bool = False,
        group_map: GroupMap = None,
        use_mask: bool | None = None,
        categorical_actions: bool = True,
        seed: int | None = None,
        done_on_any: bool | None = None,
        *,
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
        super().__init__(device=device, **kwargs)
        self.wrap_library(env)
        state = self.__dict__
        state["parallel"] = parallel
        state["return_state"] = return_state
        state["use_mask"] = (not parallel) if use_mask is None else use_mask
        state["categorical_actions"] = categorical_actions
        state["done_on_any"] = parallel if done_on_any is None else done_on_any
        state["possible_agents"] = list(env.possible_agents)
        state["_api"] = ParallelAdapter(env) if parallel else AECAdapter(env)
        state["_ended"] = {}
        state["group_map"] = self._groups_of(group_map)
        self._make_specs()
        if seed is not None:
            self.set_seed(seed)

    def _groups_of(self, group_map: GroupMap) -> dict[str, list[str]]:
        if group_map is None and not self.parallel:
            group_map = MarlGroupMapType.ONE_GROUP_PER_AGENT
        return group_agents(group_map, self.possible_agents)

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

    # -- steps ----------------------------------------------------------------------------------------------------

    def reset_into(self, out: dict[Any, np.ndarray], seed: int | None, env_info: object) -> None:
        """Begin an episode."""
        self._begin(seed, None, self._rows_of(out), out)

    def step_into(self, action: Any, out: dict[Any, np.ndarray]) -> tuple[bool, bool]:
        """Take the actions of all agents that act."""
        return self.bind_step(out)(action, out)

    def bind_step(self, out: dict[Any, np.ndarray]) -> Callable[[Any, Any], tuple[bool, bool]]:
        rows = self._rows_of(out)

        def step(action: Any, _: Any) -> tuple[bool, bool]:
            return self._take_step(lambda group: group.row_actions(action), rows, out)

        return step

    def _rows_of(self, out: dict[Any, np.ndarray]) -> list[AgentRows]:
        return [AgentRows.of(group.name, self.group_map[group.name], out) for group in self.groups]

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
        state = self._new_state_row()
        self._begin(self.take_seed(), kwargs.get("options"), [group.memory.rows for group in self.groups], state)
        return self._data(state, (False, False), stepped=False)

    def _step(self, tensordict: TensorDictBase) -> TensorDictBase:
        state = self._new_state_row()
        rows = [group.memory.rows for group in self.groups]
        flags = self._take_step(lambda group: group.actions(tensordict), rows, state)
        return self._data(state, flags, stepped=True)

    def _begin(
        self, seed: int | None, options: object, rows: Sequence[AgentRows], state: dict[Any, np.ndarray]
    ) -> None:
        """Begin an episode, and write its first data; see :meth:`_write` for the arguments."""
        outcome = self._api.reset(seed, options)
        self._ended.clear()
        self._write(outcome, rows, state, "reset")

    def _take_step(
        self, actions_of: Callable[[AgentGroup], list[Any]], rows: Sequence[AgentRows], state: dict[Any, np.ndarray]
    ) -> tuple[bool, bool]:
        """Step the library; return whether the episode has terminated, and whether it was truncated.

        Args:
            actions_of: function that returns the actions of the agents of a group.
            rows, state: see :meth:`_write`.
        """
        if not self._env.agents:
            raise StateError("All agents have ended: call env.reset() before the next step.")
        group_actions: dict[str, list[Any]] = {}
        index = self._index

        def action_of(name: str) -> Any:
            group, i, agent = index[name]
            actions = group_actions.get(group.name)
            if actions is None:  # read only groups with an acting agent
                actions = group_actions[group.name] = actions_of(group)
            return agent.library_action(actions[i])

        outcome = self._api.step(action_of)
        ended = self._ended
        for name, terminated in outcome.terminated.items():
            truncated = outcome.truncated[name]
            if terminated is not False or truncated is not False:
                flags = self._flags_of(name, terminated, truncated)
                if any(flags):
                    ended[name] = flags
        self._write(outcome, rows, state, "step")
        return self._episode_flags() if ended else (False, False)

    def _write(self, outcome: Outcome, rows: Sequence[AgentRows], state: dict[Any, np.ndarray], method: str) -> None:
        """Write the data of a reset or a step.

        Args:
            outcome: the values of the library.
            rows: the rows of each group.
            state: where ``"state"`` is written, with ``return_state``.
            method: ``"reset"`` or ``"step"``. A reset has no rewards.
        """
        alive, infos, acting, ended = outcome.observations, outcome.infos, outcome.acting, self._ended
        if not self.use_mask and len(alive) < len(self.possible_agents):
            ended_agents = [name for name in self.possible_agents if name not in alive]
            raise StateError(
                f"The agents {ended_agents} have ended, and with them the episode: reset the environment. If the other "
                "agents should go on, make it with use_mask=True, done_on_any=False."
            )
        name = ""
        try:
            for group, targets in zip(self.groups, rows, strict=True):
                for agent, out in zip(group.agents, targets.views, strict=True):
                    name = agent.name
                    if name in alive:
                        agent.write(alive[name], infos.get(name) or {}, out, acts=name in acting)
                    else:
                        agent.write_ended(out)
                name = ""
                if method == "step":
                    targets.write_rewards(outcome.rewards)
                targets.write_flags(ended)
        except SpecError as error:
            place = f"{self!r}.{method}, " + (f"agent {name!r}: " if name else "")
            raise SpecError(f"{place}{error}") from None
        if self.return_state:
            value = self._env.state()
            if self._state_reader is None:
                write_row(state, "state", value)
            else:
                self._state_reader.write(value, state)

    def _new_state_row(self) -> dict[Any, np.ndarray]:
        """Return new memory for the global state."""
        if not self.return_state:
            return {}
        spec = self.observation_spec["state"]
        return {"state": torch.zeros(spec.shape, dtype=spec.dtype, device="cpu").numpy()}

    def _data(self, state: dict[Any, np.ndarray], flags: tuple[bool, bool], *, stepped: bool) -> TensorDictBase:
        """Build a TensorDict of the groups' memory, which :meth:`_write` has filled."""
        data: dict[str, Any] = {group.name: group.memory.data(stepped=stepped) for group in self.groups}
        terminated, truncated = flags
        columns = {"done": terminated or truncated, "terminated": terminated, "truncated": truncated}
        for name, array in (*state.items(), *((name, np.array([flag])) for name, flag in columns.items())):
            tensor = torch.from_numpy(array)
            data[name] = tensor if self.device is None else tensor.to(self.device)
        return build_td(data, self.batch_size, self.device)

    def _flags_of(self, name: str, terminated: object, truncated: object) -> tuple[bool, bool]:
        """Convert the flags of an agent."""
        try:
            return as_flag("terminated", terminated), as_flag("truncated", truncated)
        except SpecError as error:
            raise SpecError(f"{self!r}.step, agent {name!r}: {error}") from None

    def _episode_flags(self) -> tuple[bool, bool]:
        """Return whether the episode has terminated, and whether it was truncated, from the flags of the agents."""
        flags = self._ended.values()
        if not self.done_on_any and len(flags) < len(self.possible_agents):
            return False, False
        # If all have to end, and some terminated and others were truncated, the episode counts as truncated.
        decides = any if self.done_on_any else all
        return decides(terminated for terminated, _ in flags), any(truncated for _, truncated in flags)

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
