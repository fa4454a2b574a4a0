"""SMACv2Wrapper: wrap a battle of SMACv2."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from steppe.envs import ArrayEnv, LibraryWrapper, write_row
from steppe.errors import ActionError, ArgumentError, NotSupported
from steppe.registry import AvailableEnvs
from steppe.specs import Binary, Categorical, Composite, OneHot, Spec, Unbounded

from .names import map_names

__all__ = ["SMACv2Wrapper"]

_FLAGS = ("done", "terminated", "truncated")
_INFO_FLAGS = ("battle_won", "episode_limit")
_INFO_COUNTS = ("dead_allies", "dead_enemies")

#: Attributes of the library that hold the number of a type of units.
_UNIT_TYPES = ("marine", "marauder", "medivac", "hydralisk", "zergling", "baneling", "stalker", "colossus", "zealot")


class SMACv2Wrapper(LibraryWrapper, ArrayEnv):
    """Wrap a battle of SMACv2, ``StarCraft2Env`` or ``StarCraftCapabilityEnvWrapper``.

    ================================  ================================================================================
    Key                               Value, for n agents and a actions
    ================================  ================================================================================
    ``("agents", "observation")``     ``[n, k]`` float32; zeros of dead agents
    ``("agents", "action_mask")``     ``[n, a]`` bool: the actions that the library accepts
    ``("agents", "mask")``            ``[n]`` bool: agents that are alive
    ``("agents", "action")``          ``[n]`` integers, or ``[n, a]`` one-hot rows with ``categorical_actions=False``
    ``"state"``                       ``[s]`` float32, the state of the whole battle
    ``("info", "battle_won")``        ``[]`` bool, with ``"episode_limit"``, whether the time ended the episode
    ``("info", "dead_allies")``       ``[]`` int64, with ``"dead_enemies"``
    ``"reward"``                      ``[1]`` float32, of all agents together
    ``"done"``                        ``[1]`` bool, with ``"terminated"`` (the battle is over) and ``"truncated"`` (the
                                      time is over, or the connection to StarCraft was lost)
    ================================  ================================================================================

    A dead agent can only take action 0, which living agents cannot take. Masks are declared as :attr:`action_masks`, so
    random actions respect them.

    The first reset launches StarCraft II.

    >>> from smacv2.env import StarCraft2Env
    >>> from steppe_smacv2 import SMACv2Wrapper
    >>> env = SMACv2Wrapper(StarCraft2Env(map_name="3m"))
    >>> env.group_map
    {'agents': ['0', '1', '2']}

    Args:
        env: the battle.
        categorical_actions: actions are integers instead of one-hot rows.
        device: device of the data.
        **kwargs: for :class:`steppe.EnvBase`.

    Attributes:
        group_map: ``{"agents": [names]}``.

    Raises:
        TypeError: ``env`` is no battle of SMACv2.
        NotSupported: a batch size was passed.
    """

    git_url = "https://github.com/oxwhirl/smacv2"
    libname = "smacv2"
    available_envs = AvailableEnvs(map_names)

    def __init__(
        self,
        env: Any,
        categorical_actions: bool = True,
        *,
        device: torch.device | str | int | None = None,
        **kwargs: Any,
    ) -> None:
        if not all(hasattr(env, name) for name in ("get_env_info", "get_avail_actions", "get_state")):
            raise TypeError(
                f"SMACv2Wrapper wraps smacv2.env.StarCraft2Env or StarCraftCapabilityEnvWrapper, found {env!r}. To "
                "make one by the name of its map, call SMACv2Env('3m')."
            )
        if kwargs.get("batch_size"):
            raise NotSupported("A battle has no batch_size. For a batch, call ParallelEnv(n, 'smacv2:...').")
        super().__init__(device=device, **kwargs)
        self.wrap_library(env)
        state = self.__dict__
        state["categorical_actions"] = categorical_actions
        state["_available"] = None
        #: The state of Python's global generator, which shuffles teams.
        state["_shuffling"] = random.getstate()
        self._make_specs()

    def _make_specs(self) -> None:
        # The sizes are known before StarCraft is launched.
        sizes, device = self._env.get_env_info(), self.device
        n, choices = int(sizes["n_agents"]), int(sizes["n_actions"])
        self.__dict__["group_map"] = {"agents": [str(agent) for agent in range(n)]}
        action: Spec = Categorical(choices) if self.categorical_actions else OneHot(choices)
        agents = Composite(
            observation=Unbounded(shape=(n, int(sizes["obs_shape"]))),
            action_mask=Binary(shape=(n, choices), dtype=torch.bool),
            mask=Binary(shape=(n,), dtype=torch.bool),
            shape=(n,),
        )
        info = Composite(
            {name: Binary(shape=(), dtype=torch.bool) for name in _INFO_FLAGS}
            | {name: Unbounded(shape=(), dtype=torch.int64) for name in _INFO_COUNTS}
        )
        specs: dict[str, dict[str, Any]] = {
            "observation": {"agents": agents, "state": Unbounded(shape=(int(sizes["state_shape"]),)), "info": info},
            "action": {"agents": Composite(action=action.expand(n, *action.shape), shape=(n,))},
            "reward": {"reward": Unbounded(shape=(1,))},
            "done": {name: Binary(shape=(1,), dtype=torch.bool) for name in _FLAGS},
        }
        for kind, spec in specs.items():
            self.assign_spec(kind, Composite(spec) if device is None else Composite(spec).to(device))
        self.action_masks = {("agents", "action"): ("agents", "action_mask")}

    @property
    def _battle(self) -> Any:
        """The ``StarCraft2Env``, which the wrapper for teams has inside."""
        return getattr(self._env, "env", self._env)

    # -- rows -----------------------------------------------------------------------------------------------------

    def reset_into(self, out: dict[Any, np.ndarray], seed: int | None, env_info: object) -> None:
        """Begin an episode."""
        observations, state = self._call(self._env.reset)
        # Until an episode has ended, each reset would launch another StarCraft with the same seed, leave this one
        # running, and add to the sum that scales rewards.
        self._battle._episode_count = max(1, self._battle._episode_count)
        self._write(observations, state, out)
        for name in (*_INFO_FLAGS, *_INFO_COUNTS):
            out["info", name][...] = 0

    def step_into(self, action: Any, out: dict[Any, np.ndarray]) -> tuple[bool, bool]:
        """Take the actions of all agents."""
        chosen = np.atleast_1d(action["agents", "action"] if isinstance(action, dict) else action)
        if not self.categorical_actions:
            chosen = chosen.reshape(self._available.shape).argmax(-1)
        self._check(chosen)
        timeouts = self._battle.timeouts
        reward, ended, info = self._call(self._env.step, chosen.tolist())
        self._write(self._env.get_obs(), self._env.get_state(), out)
        out["reward"][0] = reward
        # A lost connection returns an empty info. The time is over if the library counts it: its flag is the same for
        # a time that is over and a battle that is.
        truncated = bool(ended) and (not info or self._battle.timeouts > timeouts)
        out["info", "battle_won"][...] = bool(info.get("battle_won", False))
        out["info", "episode_limit"][...] = truncated and bool(info)
        for name in _INFO_COUNTS:
            out["info", name][...] = info.get(name, 0)
        return bool(ended) and not truncated, truncated

    def _write(self, observations: Any, state: Any, out: dict[Any, np.ndarray]) -> None:
        write_row(out, ("agents", "observation"), np.stack(observations))
        write_row(out, "state", state)
        available = np.array(self._env.get_avail_actions(), bool)
        self.__dict__["_available"] = available
        out["agents", "action_mask"][...] = available
        # Only dead agents may do nothing.
        out["agents", "mask"][...] = ~available[:, 0]

    def _check(self, chosen: np.ndarray) -> None:
        # The library checks agent by agent, and has changed its memory of last actions when it raises.
        allowed = self._available[np.arange(len(chosen)), chosen]
        if not allowed.all():
            agent = int((~allowed).argmax())
            choices = np.flatnonzero(self._available[agent]).tolist()
            raise ActionError(
                f"Agent {agent} cannot take action {int(chosen[agent])}: available are {choices}. Choose by "
                "('agents', 'action_mask') of the data, or call env.rand_action(td)."
            )

    def _call(self, function: Callable[..., Any], *args: Any) -> Any:
        others = random.getstate()
        random.setstate(self._shuffling)
        try:
            return function(*args)
        finally:
            self.__dict__["_shuffling"] = random.getstate()
            random.setstate(others)

    def _set_seed(self, seed: int | None) -> None:
        if seed is not None:
            raise NotSupported(
                "SMACv2 is seeded when it is made, and this battle was made outside of steppe. Pass seed=... there, or "
                "use SMACv2Env, which makes a new battle with the seed."
            )

    # -- the library ----------------------------------------------------------------------------------------------

    @property
    def lib(self) -> Any:
        """The module ``smacv2``."""
        import smacv2

        return smacv2

    def get_agent_type(self, agent_index: int) -> str:
        """Return the name of the type of an agent's unit, such as ``"marine"``, after a reset.

        Raises:
            ValueError: there is no such agent.
        """
        battle = self._battle
        if not 0 <= agent_index < battle.n_agents:
            raise ArgumentError(f"agent_index must be at least 0 and below {battle.n_agents}, found {agent_index}.")
        kind = battle.agents[agent_index].unit_type
        for name in _UNIT_TYPES:
            if getattr(battle, f"{name}_id", None) == kind:
                return name
        raise ValueError(f"Agent {agent_index} has a unit of the unknown type {kind}.")

    def render(self, mode: str = "human") -> Any:
        """Draw the battle: in a window, or with ``"rgb_array"`` an image ``[height, width, 3]`` uint8."""
        return self._battle.render(mode=mode)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({getattr(self._battle, 'map_name', None)!r})"
