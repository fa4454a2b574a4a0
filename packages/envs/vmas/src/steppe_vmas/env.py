"""VmasEnv: the environments of a VMAS scenario, stepped at once in torch."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from tensordict import TensorDict, TensorDictBase

from steppe.envs import GroupMap, LibraryWrapper, RowLayout, base_arguments, group_agents, layout_problem
from steppe.errors import ActionError, NotSupported, SpecError
from steppe.registry import AvailableEnvs, env_not_found
from steppe.specs import Binary, Composite, MultiOneHot, OneHot, Spec

from .agent_data import AgentGroup, by_agent, leaves_of
from .arguments import made_of_known_arguments
from .random_state import RandomState
from .rows import NO_PARTIAL_STEP, VmasRows
from .scenarios import scenario_names

__all__ = ["VmasEnv", "VmasWrapper"]

_FLAGS = ("done", "terminated", "truncated")


class VmasWrapper(LibraryWrapper):
    """An environment of VMAS, ``vmas.make_env(...)``, as a batch of its ``num_envs`` environments.

    Agents are in groups, and the data of a group of m agents is stacked in dimension 1:

    ============================  =================================================================================
    Key                           What, for n environments
    ============================  =================================================================================
    ``(group, "observation")``    ``[n, m, k]`` float32; the entries of a dict observation under their own names
    ``(group, "info", name)``     ``[n, m, ...]``, what the scenario tells of each agent after a step; zeros after a
                                  reset, where scenarios tell of the last step of another episode
    ``(group, "action")``         ``[n, m, k]`` float32; ``[n, m]`` numbers for discrete actions, ``[n, m, k]``
                                  one-hot rows with ``categorical_actions=False``
    ``(group, "reward")``         ``[n, m, 1]`` float32
    ``"done"``                    ``[n, 1]`` bool, with ``"terminated"`` (of the scenario) and ``"truncated"``
                                  (``max_steps`` of VMAS)
    ============================  =================================================================================

    Agents of a group whose observations or infos differ are stacked lazily (``StackedComposite``).

    Each environment draws from random numbers of its own: VMAS itself has one state for all of a process. On CUDA
    devices the numbers of torch's CUDA generator are shared all the same.

    Gradients flow from data back to actions where the environment was made with ``grad_enabled=True``.

    Attributes that this class lacks (``scenario``, ``agents``, ``world``) are looked up on the environment.

    Args:
        env: the environment; it is told to give ``terminated`` and ``truncated`` apart.
        categorical_actions: discrete actions as numbers, not one-hot rows.
        group_map: ``{group: [agent names]}``, a :class:`~steppe.MarlGroupMapType`, or None: agents that are called
            ``"<name>_<number>"`` are grouped by name, and all are in ``"agents"`` where one is called otherwise.
        device: of the data; that of the environment by default.
        **kwargs: for :class:`steppe.EnvBase`.

    Attributes:
        group_map: ``{group: [agent names]}``.
        agent_names: names of all agents, in the order of VMAS.

    Raises:
        SpecError: ``group_map`` does not fit the agents.
    """

    git_url = "https://github.com/proroklab/VectorizedMultiAgentSimulator"
    libname = "vmas"
    available_envs = AvailableEnvs(scenario_names)

    def __init__(
        self,
        env: Any,
        *,
        categorical_actions: bool = True,
        group_map: GroupMap = None,
        device: Any = None,
        **kwargs: Any,
    ) -> None:
        if device is not None and torch.device(device) != env.device:
            env.to(torch.device(device))
        super().__init__(device=env.device if device is not None else None, batch_size=(env.num_envs,), **kwargs)
        env.terminated_truncated = True
        self.wrap_library(env)
        state = self.__dict__
        state["_random"] = RandomState()
        state["categorical_actions"] = categorical_actions
        state["agent_names"] = [agent.name for agent in env.agents]
        state["group_map"] = group_agents(group_map, self.agent_names)
        state["groups"] = [
            AgentGroup(name, [self.agent_names.index(agent) for agent in agents], env.num_envs)
            for name, agents in self.group_map.items()
        ]
        self._make_specs()

    def _make_specs(self) -> None:
        env, n = self._env, self.batch_size
        values = self._read(
            ("observation", "info"), *self._random.call(env.get_from_scenario, True, False, True, False)
        )
        self.__dict__["_no_infos"] = [
            {path: torch.zeros_like(value) for path, value in mine.items() if path[0] == "info"} for mine in values
        ]
        spaces = by_agent(env.action_space.spaces)
        self.observation_spec = Composite({one.name: one.observation_spec(values) for one in self.groups}, shape=n)
        self.reward_spec = Composite({one.name: one.reward_spec(env.device) for one in self.groups}, shape=n)
        categorical = self.categorical_actions
        actions = {one.name: one.action_spec(spaces, categorical=categorical, device=env.device) for one in self.groups}
        self.action_spec = Composite(actions, shape=n)
        flags = {name: Binary(shape=(*n, 1), dtype=torch.bool, device=env.device) for name in _FLAGS}
        self.done_spec = Composite(flags, shape=n)
        self.__dict__["one_hot_sizes"] = self._one_hot_sizes()

    def _one_hot_sizes(self) -> list[list[int] | None]:
        sizes: list[list[int] | None] = [None] * len(self.agent_names)
        for group in self.groups:
            spec = self.full_action_spec[group.name]
            for agent, member in enumerate(group.members):
                leaf: Spec = spec[:, agent]["action"]
                if isinstance(leaf, MultiOneHot):  # which is a OneHot too
                    sizes[member] = [box.n for box in leaf.space]
                elif isinstance(leaf, OneHot):
                    sizes[member] = [leaf.n]
        return sizes

    @property
    def lib(self) -> Any:
        """The module ``vmas``."""
        import vmas

        return vmas

    # -- rows of arrays -------------------------------------------------------------------------------------------

    @property
    def row_problem(self) -> str | None:
        """Why there is no ``row_writer``; None where there is one."""
        if self._env.grad_enabled:
            return "gradients flow through its steps (grad_enabled=True)."
        problem: str | None = self.cached("row_problem", lambda: layout_problem(self))
        return problem

    @property
    def row_writer(self) -> VmasRows | None:
        """Writes the rows of all environments; None with gradients, unequal agents in a group, or on a GPU."""
        if self.row_problem is not None:
            return None
        writer: VmasRows = self.cached("row_writer", lambda: VmasRows(self, RowLayout.of(self)))
        return writer

    # -- what VMAS gives ------------------------------------------------------------------------------------------

    def _read(self, kinds: Sequence[str], *lists: Any) -> list[dict[tuple[str, ...], torch.Tensor]]:
        """Put what VMAS gave for each agent together: ``{path: [n, ...]}`` for each of them."""
        columns = [by_agent(values) for values in lists]
        return [
            {path: value for kind, one in zip(kinds, of_agent, strict=True) for path, value in leaves_of(one, kind)}
            for of_agent in zip(*columns, strict=True)
        ]

    def advance(self, actions: list[torch.Tensor]) -> tuple[list[dict[Any, torch.Tensor]], torch.Tensor, torch.Tensor]:
        """Step VMAS; return the entries of each agent, terminated ``[n]`` and truncated ``[n]``.

        Args:
            actions: one for each agent, ``[n, k]``.

        Raises:
            ActionError: VMAS refuses one.
        """
        try:
            observations, rewards, terminated, truncated, infos = self._random.call(self._env.step, actions)
        except AssertionError as error:
            if "out of" not in str(error):
                raise
            raise ActionError(
                f"VMAS refused an action: {error} Bring it into the bounds of env.full_action_spec with "
                "env.full_action_spec.project(...), or make the environment with clamp_actions=True."
            ) from None
        return self._read(("observation", "reward", "info"), observations, rewards, infos), terminated, truncated

    def begin(self, rows: Sequence[int] | None) -> list[dict[Any, torch.Tensor]]:
        """Reset some environments, or all; return the entries of each agent, of all environments."""
        values: list[dict[Any, torch.Tensor]] = self._random.call(self._begin, rows)
        return values

    def _begin(self, rows: Sequence[int] | None) -> list[dict[Any, torch.Tensor]]:
        env = self._env
        if rows is None:
            observations = env.reset()
        else:
            for row in rows:
                env.reset_at(row, return_observations=False)
            (observations,) = env.get_from_scenario(True, False, False, False)
        values = self._read(("observation",), observations)
        for mine, none in zip(values, self._no_infos, strict=True):
            mine.update(none)
        return values

    def _data(self, values: list[dict[Any, torch.Tensor]], flags: Sequence[torch.Tensor]) -> TensorDict:
        data: dict[str, Any] = {group.name: group.stack(values) for group in self.groups}
        data.update(zip(_FLAGS, (flag.unsqueeze(-1) for flag in flags), strict=True))
        return TensorDict(data, self.batch_size, device=self.device)

    # -- the contract ---------------------------------------------------------------------------------------------

    def _reset(self, tensordict: TensorDictBase | None = None, **kwargs: Any) -> TensorDictBase:
        if kwargs:
            raise SpecError(
                f"VMAS takes no arguments at reset, found {sorted(kwargs)}. Seed it with env.set_seed(seed)."
            )
        mask = tensordict.get("_reset", None) if tensordict is not None else None
        rows = None if mask is None or bool(mask.all()) else mask.flatten().nonzero()[:, 0].tolist()
        none = torch.zeros(self.batch_size, dtype=torch.bool, device=self._env.device)
        return self._data(self.begin(rows), (none, none.clone(), none.clone()))

    def _step(self, tensordict: TensorDictBase) -> TensorDictBase:
        if tensordict.get("_step", None) is not None:
            raise NotSupported(NO_PARTIAL_STEP)
        actions: list[Any] = [None] * len(self.agent_names)
        for group in self.groups:
            given = group.actions(tensordict, one_hot=self.one_hot_sizes)
            for member, action in zip(group.members, given, strict=True):
                actions[member] = action
        values, terminated, truncated = self.advance(actions)
        return self._data(values, (terminated | truncated, terminated, truncated))

    def _set_seed(self, seed: int | None) -> None:
        # VMAS takes None for 0.
        value = int(np.random.default_rng().integers(2**31)) if seed is None else int(seed) % 2**32
        self._random.call(self._env.seed, value)

    def render(self, mode: str = "rgb_array", env_index: int = 0, **kwargs: Any) -> Any:
        """Draw one of the environments.

        Args:
            mode: ``"rgb_array"``, without a display, or ``"human"``.
            env_index: which one.
            **kwargs: for VMAS' ``render``.

        Returns:
            ``[height, width, 3]`` uint8 for ``"rgb_array"``.
        """
        return self._random.call(self._env.render, mode=mode, env_index=env_index, **kwargs)

    def to(self, device: Any) -> Any:  # type: ignore[override]
        """Move the simulation and the specs to another device."""
        self._env.to(torch.device(device))
        return super().to(device)


class VmasEnv(VmasWrapper):
    """Makes a scenario of VMAS by its name and wraps it; see :class:`VmasWrapper` for the data.

    Args:
        scenario: a name of ``VmasEnv.available_envs``, the path of a file that has a class ``Scenario``, or an instance
            of ``vmas.simulator.scenario.BaseScenario``.
        num_envs: how many environments are stepped at once.
        continuous_actions: whether actions are continuous; the scenario says how many discrete ones there are.
        max_steps: truncates an episode after so many steps; None for no limit.
        categorical_actions: discrete actions as numbers, not one-hot rows.
        seed: the first seed; None for one that nobody knows.
        group_map: see :class:`VmasWrapper`.
        device: where VMAS computes; the CPU by default.
        **kwargs: for :class:`steppe.EnvBase`, for ``vmas.make_env`` (``multidiscrete_actions``, ``clamp_actions``,
            ``grad_enabled``), and all others for the scenario (``n_agents``, ...).

    Raises:
        EnvNotFound: VMAS has no such scenario.
        SpecError: ``num_envs`` is no positive number.
        TypeError: the scenario has no such argument, as far as VMAS and its source say so.
    """

    def __init__(
        self,
        scenario: Any,
        *,
        num_envs: int,
        continuous_actions: bool = True,
        max_steps: int | None = None,
        categorical_actions: bool = True,
        seed: int | None = None,
        group_map: GroupMap = None,
        device: Any = None,
        **kwargs: Any,
    ) -> None:
        if isinstance(num_envs, bool) or not isinstance(num_envs, int) or num_envs < 1:
            raise SpecError(f"num_envs is a whole number >= 1, found {num_envs!r}.")
        import vmas
        from vmas.scenarios import load

        names = scenario_names()
        if isinstance(scenario, str) and not scenario.endswith(".py") and scenario not in names:
            raise env_not_found("vmas", scenario)
        own = base_arguments(kwargs)
        if own.pop("batch_size", None) not in (None, num_envs, (num_envs,), [num_envs]):
            raise SpecError(f"The batch of VmasEnv is num_envs={num_envs}: leave batch_size out.")
        value = int(np.random.default_rng().integers(2**31)) if seed is None else seed
        made_of = scenario
        if isinstance(scenario, str):  # loaded as VMAS does it, to know what it takes
            made_of = load(scenario if scenario.endswith(".py") else f"{scenario}.py").Scenario()
        make = functools.partial(
            vmas.make_env,
            made_of,
            num_envs=num_envs,
            device="cpu" if device is None else device,
            continuous_actions=continuous_actions,
            max_steps=max_steps,
            seed=value,
            terminated_truncated=True,
            **kwargs,
        )
        of_vmas = set(inspect.signature(vmas.make_env).parameters) - {"kwargs"}
        own_names = {*inspect.signature(VmasEnv.__init__).parameters} - {"self", "kwargs"}
        env = made_of_known_arguments(make, made_of, set(kwargs) - of_vmas, of_vmas | own_names)
        super().__init__(env, categorical_actions=categorical_actions, group_map=group_map, device=device, **own)
        self.__dict__["scenario_name"] = scenario if isinstance(scenario, str) else type(scenario).__name__

    def __repr__(self) -> str:
        return f"VmasEnv({self.scenario_name!r}, num_envs={self.batch_size[0]}, groups={list(self.group_map)})"
