"""VmasEnv: a batch of environments of a VMAS scenario, stepped together in torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from tensordict import TensorDict, TensorDictBase

from steppe.envs import LibraryWrapper, RowLayout, base_arguments, no_layout_reason
from steppe.errors import ActionError, ArgumentError, NotSupported, SpecError
from steppe.registry import AvailableEnvs, env_not_found
from steppe.specs import Binary, Composite, Spec
from steppe_multi_agent import GroupMap, group_agents

from .agent_data import AgentGroup, by_agent, leaves_of
from .random_state import RandomState
from .scenarios import scenario_names
from .vmas_writer import NO_PARTIAL_STEP, VmasWriter

__all__ = ["VmasEnv", "VmasWrapper"]

_FLAGS = ("done", "terminated", "truncated")


class VmasWrapper(LibraryWrapper):
    """Wrap an environment of VMAS, ``vmas.make_env(...)``, as a batch.

    Agents are divided into groups. The data of a group of m agents is stacked in dimension 1:

    ============================  =================================================================================
    Key                           Value, for n environments
    ============================  =================================================================================
    ``(group, "observation")``    ``[n, m, k]`` float32; entries of a dict observation have their own names
    ``(group, "info", name)``     ``[n, m, ...]``, the info of each agent after a step; zeros after a reset, where
                                  scenarios would return the info of the last episode
    ``(group, "action")``         ``[n, m, k]`` float32; ``[n, m]`` integers for discrete actions, ``[n, m, k]``
                                  one-hot vectors with ``categorical_actions=False``
    ``(group, "reward")``         ``[n, m, 1]`` float32
    ``"done"``                    ``[n, 1]`` bool, with ``"terminated"`` (by the scenario) and ``"truncated"``
                                  (``max_steps`` of VMAS)
    ============================  =================================================================================

    Agents of a group whose observations or infos differ are stacked lazily (``StackedComposite``).

    Each environment has its own random state, whereas VMAS itself has one for all environments of a process. On CUDA
    devices, environments still share torch's CUDA generator.

    If the environment was made with ``grad_enabled=True``, gradients flow from data back to actions.

    Attributes that this class lacks (``scenario``, ``agents``, ``world``) are looked up on the environment.

    >>> import vmas
    >>> from steppe_vmas import VmasWrapper
    >>> env = VmasWrapper(vmas.make_env("navigation", num_envs=16, n_agents=3))
    >>> env.group_map
    {'agents': ['agent_0', 'agent_1', 'agent_2']}
    >>> env.rollout(5)["next", "agents", "reward"].shape
    torch.Size([16, 5, 3, 1])

    Args:
        env: the environment. Its attribute ``terminated_truncated`` is set to True.
        categorical_actions: discrete actions are integers instead of one-hot vectors.
        group_map: ``{group: [agent names]}``, a :class:`~steppe.MarlGroupMapType`, or None. With None, agents named
            ``"<name>_<number>"`` are grouped by name; a single group ``"agent"`` is called ``"agents"``.
        device: device of the data. ``None``: the device of the environment.
        batch_size: ``[num_envs]`` of the environment, or None.
        **kwargs: for :class:`steppe.EnvBase`.

    Attributes:
        group_map: ``{group: [agent names]}``.
        agent_names: the names of all agents, in the order of VMAS.

    Raises:
        SpecError: ``group_map`` does not fit the agents.
        ArgumentError: ``batch_size`` does not fit the environment.
    """

    git_url = "https://github.com/proroklab/VectorizedMultiAgentSimulator"
    libname = "vmas"
    available_envs = AvailableEnvs(scenario_names)

    def __init__(
        self,
        env: Any,
        categorical_actions: bool = True,
        group_map: GroupMap = None,
        *,
        device: torch.device | str | int | None = None,
        batch_size: Any = None,
        **kwargs: Any,
    ) -> None:
        size = _batch_size(env.num_envs, batch_size)
        if device is not None and torch.device(device) != env.device:
            env.to(torch.device(device))
        super().__init__(device=env.device if device is not None else None, batch_size=size, **kwargs)
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
        self.__dict__["_zero_infos"] = [
            {path: torch.zeros_like(value) for path, value in agent_values.items() if path[0] == "info"}
            for agent_values in values
        ]
        spaces = by_agent(env.action_space.spaces)
        self.observation_spec = Composite(
            {group.name: group.observation_spec(values) for group in self.groups}, shape=n
        )
        self.reward_spec = Composite({group.name: group.reward_spec(env.device) for group in self.groups}, shape=n)
        categorical = self.categorical_actions
        actions = {
            group.name: group.action_spec(spaces, categorical=categorical, device=env.device) for group in self.groups
        }
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
                sizes[member] = leaf.one_hot_sizes
        return sizes

    @property
    def lib(self) -> Any:
        """The module ``vmas``."""
        import vmas

        return vmas

    # -- rows of arrays -------------------------------------------------------------------------------------------

    def no_rows_reason(self) -> str | None:
        """Return why the environments are not stepped on rows, or None if they are."""
        if self._env.grad_enabled:
            return "gradients flow through its steps (grad_enabled=True)."
        reason: str | None = no_layout_reason(self)
        return reason

    def make_row_writer(self) -> VmasWriter:
        """Make the row writer of all environments."""
        return VmasWriter(self, RowLayout.of(self))

    # -- values of VMAS -------------------------------------------------------------------------------------------

    def _read(self, kinds: Sequence[str], *lists: Any) -> list[dict[tuple[str, ...], torch.Tensor]]:
        """Merge lists of VMAS into one dict ``{path: [n, ...]}`` for each agent.

        Each list has one value for each agent.
        """
        columns = [by_agent(values) for values in lists]
        return [
            {path: leaf for kind, value in zip(kinds, agent, strict=True) for path, leaf in leaves_of(value, kind)}
            for agent in zip(*columns, strict=True)
        ]

    def advance(self, actions: list[torch.Tensor]) -> tuple[list[dict[Any, torch.Tensor]], torch.Tensor, torch.Tensor]:
        """Step VMAS.

        Returns the entries of each agent, terminated ``[n]`` and truncated ``[n]``.

        Args:
            actions: the action of each agent, ``[n, k]``.

        Raises:
            ActionError: VMAS refuses an action.
        """
        try:
            observations, rewards, terminated, truncated, infos = self._random.call(self._env.step, actions)
        except AssertionError as error:
            if "out of" not in str(error):
                raise
            raise ActionError(
                f"VMAS refused an action: {error} Clip it to the bounds with env.full_action_spec.project(...), or "
                "make the environment with clamp_actions=True."
            ) from None
        return self._read(("observation", "reward", "info"), observations, rewards, infos), terminated, truncated

    def begin(self, rows: Sequence[int] | None) -> list[dict[Any, torch.Tensor]]:
        """Reset some environments, or all.

        Returns the entries of each agent, for all environments.
        """
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
        for agent_values, zeros in zip(values, self._zero_infos, strict=True):
            agent_values.update(zeros)
        return values

    def _data(self, values: list[dict[Any, torch.Tensor]], flags: Sequence[torch.Tensor]) -> TensorDict:
        data: dict[str, Any] = {group.name: group.stack(values) for group in self.groups}
        data.update(zip(_FLAGS, (flag.unsqueeze(-1) for flag in flags), strict=True))
        return TensorDict(data, self.batch_size, device=self.device)

    # -- the contract ---------------------------------------------------------------------------------------------

    def _reset(self, tensordict: TensorDictBase | None = None, **kwargs: Any) -> TensorDictBase:
        if kwargs:
            raise SpecError(
                f"VmasEnv.reset takes no further arguments, found {sorted(kwargs)}. To seed it, call "
                "env.set_seed(seed)."
            )
        mask = tensordict.get("_reset", None) if tensordict is not None else None
        rows = None if mask is None or bool(mask.all()) else mask.flatten().nonzero()[:, 0].tolist()
        not_done = torch.zeros(self.batch_size, dtype=torch.bool, device=self._env.device)
        return self._data(self.begin(rows), (not_done, not_done.clone(), not_done.clone()))

    def _step(self, tensordict: TensorDictBase) -> TensorDictBase:
        if tensordict.get("_step", None) is not None:
            raise NotSupported(NO_PARTIAL_STEP)
        actions: list[Any] = [None] * len(self.agent_names)
        for group in self.groups:
            group_actions = group.actions(tensordict, one_hot=self.one_hot_sizes)
            for member, action in zip(group.members, group_actions, strict=True):
                actions[member] = action
        values, terminated, truncated = self.advance(actions)
        return self._data(values, (terminated | truncated, terminated, truncated))

    def _set_seed(self, seed: int | None) -> None:
        # VMAS treats None as the seed 0.
        value = int(np.random.default_rng().integers(2**31)) if seed is None else int(seed) % 2**32
        self._random.call(self._env.seed, value)

    def render(self, mode: str = "rgb_array", env_index: int = 0, **kwargs: Any) -> Any:
        """Draw one of the environments.

        Args:
            mode: ``"rgb_array"``, without a display, or ``"human"``.
            env_index: index of the environment.
            **kwargs: arguments of VMAS' ``render``.

        Returns:
            ``[height, width, 3]`` uint8 for ``"rgb_array"``.
        """
        return self._random.call(self._env.render, mode=mode, env_index=env_index, **kwargs)

    def to(self, device: Any) -> Any:  # type: ignore[override]
        """Move the simulation and the specs to another device."""
        self._env.to(torch.device(device))
        return super().to(device)


class VmasEnv(VmasWrapper):
    """Make environments of a VMAS scenario by its name.

    See :class:`VmasWrapper` for the data.

    >>> from steppe_vmas import VmasEnv
    >>> VmasEnv("balance", num_envs=4, n_agents=3).rollout(2)["agents", "observation"].shape[:3]
    torch.Size([4, 2, 3])

    Args:
        scenario: a name of ``VmasEnv.available_envs``, the path of a file that defines a class ``Scenario``, or an
            instance of ``vmas.simulator.scenario.BaseScenario``.
        num_envs: number of environments that are stepped together.
        continuous_actions: use continuous actions. With False, the scenario defines the number of discrete actions.
        max_steps: truncate an episode after this many steps. ``None``: no limit.
        categorical_actions: discrete actions are integers instead of one-hot vectors.
        seed: the first seed. ``None``: a random one.
        group_map: see :class:`VmasWrapper`.
        scenario_kwargs: arguments of the scenario, which ``**kwargs`` of the same names replace.
        device: device on which VMAS computes. ``None``: the CPU.
        **kwargs: for :class:`steppe.EnvBase` and for ``vmas.make_env`` (``multidiscrete_actions``, ``clamp_actions``,
            ``grad_enabled``); all others go to the scenario (``n_agents``, ...). VMAS warns about those that the
            scenario does not take.

    Raises:
        EnvNotFound: VMAS has no such scenario.
        ArgumentError: ``num_envs`` is not a positive integer, or ``batch_size`` is another number.
        NotSupported: ``from_pixels`` or ``frame_skip``, for which there are transforms.
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
        scenario_kwargs: Mapping[str, Any] | None = None,
        device: torch.device | str | int | None = None,
        **kwargs: Any,
    ) -> None:
        if isinstance(num_envs, bool) or not isinstance(num_envs, int) or num_envs < 1:
            raise ArgumentError(f"num_envs must be an integer >= 1, found {num_envs!r}.")
        import vmas
        from vmas.scenarios import load

        names = scenario_names()
        if isinstance(scenario, str) and not scenario.endswith(".py") and scenario not in names:
            raise env_not_found("vmas", scenario)
        # VMAS would pass TorchRL's arguments to the scenario, warn, and ignore them.
        if kwargs.pop("from_pixels", False):
            raise NotSupported(
                "VmasEnv has no from_pixels: write TransformedEnv(env, PixelRenderTransform()), of steppe-record, or "
                "call env.render()."
            )
        kwargs.pop("pixels_only", None)
        base_kwargs = {**base_arguments(kwargs), "frame_skip": kwargs.pop("frame_skip", None)}
        base_kwargs["batch_size"] = _batch_size(num_envs, base_kwargs.get("batch_size"))
        seed_value = int(np.random.default_rng().integers(2**31)) if seed is None else seed
        scenario_object = scenario
        if isinstance(scenario, str):  # loaded as VMAS loads it, to know its arguments
            scenario_object = load(scenario if scenario.endswith(".py") else f"{scenario}.py").Scenario()
        env = vmas.make_env(
            scenario_object,
            num_envs=num_envs,
            device="cpu" if device is None else device,
            continuous_actions=continuous_actions,
            max_steps=max_steps,
            seed=seed_value,
            terminated_truncated=True,
            **{**(scenario_kwargs or {}), **kwargs},
        )
        super().__init__(
            env, categorical_actions=categorical_actions, group_map=group_map, device=device, **base_kwargs
        )
        self.__dict__["scenario_name"] = scenario if isinstance(scenario, str) else type(scenario).__name__

    def __repr__(self) -> str:
        return f"VmasEnv({self.scenario_name!r}, num_envs={self.batch_size[0]}, groups={list(self.group_map)})"


def _batch_size(num_envs: int, requested: Any) -> tuple[int]:
    """Return the batch size of ``num_envs`` environments.

    Raises:
        ArgumentError: another one was requested.
    """
    if requested not in (None, num_envs, (num_envs,), [num_envs]):
        raise ArgumentError(
            f"The batch size of these environments is [{num_envs}], from num_envs={num_envs}; found "
            f"batch_size={requested!r}. Leave batch_size out."
        )
    return (num_envs,)
