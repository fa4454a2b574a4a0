"""MeltingpotWrapper: wrap a substrate of Melting Pot."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import torch

from steppe.arguments import ignored_argument
from steppe.envs import ArrayEnv, LibraryWrapper, write_row
from steppe.errors import ArgumentError, NotSupported, SpecError
from steppe.registry import AvailableEnvs
from steppe.specs import Binary, Bounded, Categorical, Composite, OneHot, Spec, Unbounded, numpy_to_torch_dtype_dict
from steppe_multi_agent import GroupMap, MarlGroupMapType, group_agents

from .names import env_names

__all__ = ["MeltingpotWrapper"]

_FLAGS = ("done", "terminated", "truncated")

#: Beginning of the names of observations that are those of the world, equal for all players.
_WORLD = "WORLD."


class MeltingpotWrapper(LibraryWrapper, ArrayEnv):
    """Wrap a substrate of Melting Pot, ``meltingpot.substrate.build(...)``.

    Players are agents, ``player_0``, ``player_1``, ...; the data of a group of m agents is stacked:

    ================================  ================================================================================
    Key                               Value
    ================================  ================================================================================
    ``(group, "observation", name)``  ``[m, *shape]`` in the dtype of the library; numbers are ``[m, 1]``
    ``(group, "action")``             ``[m]`` integers, or ``[m, n]`` one-hot rows with ``categorical_actions=False``
    ``(group, "reward")``             ``[m, 1]`` float32
    ``name``                          ``[*shape]``, observations of the world (``WORLD.RGB`` is ``"RGB"``)
    ``"done"``                        ``[1]`` bool, with ``"terminated"`` (by the substrate) and ``"truncated"`` (after
                                      ``max_steps``)
    ================================  ================================================================================

    Melting Pot cannot be seeded: one seed gives different worlds. ``set_seed`` seeds random actions alone.

    >>> from meltingpot import substrate
    >>> from steppe_meltingpot import MeltingpotWrapper
    >>> config = substrate.get_config("coins")
    >>> env = MeltingpotWrapper(substrate.build_from_config(config, roles=config.default_player_roles))
    >>> env.rollout(3)["next", "agents", "reward"].shape
    torch.Size([3, 2, 1])

    Args:
        env: the substrate.
        categorical_actions: actions are integers instead of one-hot rows.
        group_map: ``{group: [agents]}``, a :class:`~steppe.MarlGroupMapType`, or None to group by names. The default
            is one group ``"agents"``.
        max_steps: truncate an episode after this many steps. ``None``: no limit but that of the substrate.
        device: device of the data.
        **kwargs: for :class:`steppe.EnvBase`.

    Attributes:
        group_map: ``{group: [agents]}``.
        agent_names: the names of all players.
        max_steps: the argument.

    Raises:
        TypeError: ``env`` is no substrate.
        SpecError: ``group_map`` does not fit the players, or puts players with other observations into one group.
        NotSupported: a batch size was passed.
    """

    git_url = "https://github.com/google-deepmind/meltingpot"
    libname = "meltingpot"
    available_envs = AvailableEnvs(env_names)
    default_group_map: ClassVar[MarlGroupMapType] = MarlGroupMapType.ALL_IN_ONE_GROUP

    def __init__(
        self,
        env: Any,
        categorical_actions: bool = True,
        group_map: GroupMap = default_group_map,
        max_steps: int | None = None,
        *,
        device: torch.device | str | int | None = None,
        **kwargs: Any,
    ) -> None:
        from meltingpot.utils.substrates.substrate import Substrate

        if not isinstance(env, Substrate):
            raise TypeError(
                f"MeltingpotWrapper wraps a substrate of Melting Pot, found {env!r}. To make one by its name, call "
                "MeltingpotEnv('commons_harvest__open')."
            )
        if kwargs.get("batch_size"):
            raise NotSupported("A substrate has no batch_size. For a batch, call ParallelEnv(n, 'meltingpot:...').")
        if max_steps is not None and (isinstance(max_steps, bool) or not isinstance(max_steps, int) or max_steps < 1):
            raise ArgumentError(f"max_steps must be an integer >= 1, found {max_steps!r}.")
        super().__init__(device=device, **kwargs)
        self.wrap_library(env)
        state = self.__dict__
        state["categorical_actions"] = categorical_actions
        state["max_steps"] = max_steps
        state["_steps"] = 0
        state["agent_names"] = [f"player_{player}" for player in range(len(env.action_spec()))]
        state["group_map"] = group_agents(group_map, self.agent_names)
        self._make_specs()

    def _make_specs(self) -> None:
        env, device = self._env, self.device
        players, choices = env.observation_spec(), env.action_spec()
        observations: dict[str, Any] = {}
        actions: dict[str, Spec] = {}
        rewards: dict[str, Spec] = {}
        members: dict[str, list[int]] = {}
        fields: list[tuple[Any, list[int], str]] = []
        for group, names in self.group_map.items():
            ids = members[group] = [self.agent_names.index(name) for name in names]
            m, first = len(ids), players[ids[0]]
            own = {name: leaf for name, leaf in first.items() if not name.startswith(_WORLD)}
            for player in ids:
                others = {name: leaf for name, leaf in players[player].items() if not name.startswith(_WORLD)}
                if _shapes(others) != _shapes(own) or choices[player].num_values != choices[ids[0]].num_values:
                    raise SpecError(
                        f"{names[0]!r} and {self.agent_names[player]!r} have other observations or actions: put them "
                        "into different groups with group_map={...}."
                    )
            leaves = {name: _spec(leaf, m) for name, leaf in own.items()}
            observations[group] = Composite(observation=Composite(leaves, shape=(m,)), shape=(m,))
            fields += [((group, "observation", name), ids, name) for name in own]
            n = int(choices[ids[0]].num_values)
            action: Spec = Categorical(n) if self.categorical_actions else OneHot(n)
            actions[group] = Composite(action=action.expand(m, *action.shape), shape=(m,))
            rewards[group] = Composite(reward=Unbounded(shape=(m, 1)), shape=(m,))
        world = {name: leaf for name, leaf in players[0].items() if name.startswith(_WORLD)}
        observations.update({name.removeprefix(_WORLD): _spec(leaf) for name, leaf in world.items()})
        flags = {name: Binary(shape=(1,), dtype=torch.bool) for name in _FLAGS}
        for kind, spec in (("observation", observations), ("action", actions), ("reward", rewards), ("done", flags)):
            self.assign_spec(kind, Composite(spec) if device is None else Composite(spec).to(device))
        attributes = self.__dict__
        attributes["_members"], attributes["_fields"] = members, fields
        attributes["_world"] = [(name.removeprefix(_WORLD), name) for name in world]

    # -- rows -----------------------------------------------------------------------------------------------------

    def reset_into(self, out: dict[Any, np.ndarray], seed: int | None, env_info: object) -> None:
        """Begin an episode. ``seed`` has no effect on the substrate."""
        self.__dict__["_steps"] = 0
        self._write(self._env.reset().observation, out)

    def step_into(self, action: Any, out: dict[Any, np.ndarray]) -> tuple[bool, bool]:
        """Take the actions of all players."""
        chosen = [0] * len(self.agent_names)
        for group, ids in self._members.items():
            value = np.atleast_1d(action[group, "action"] if isinstance(action, dict) else action)
            numbers = value if self.categorical_actions else value.reshape(len(ids), -1).argmax(-1)
            for player, number in zip(ids, numbers.tolist(), strict=True):
                chosen[player] = number
        timestep = self._env.step(chosen)
        self.__dict__["_steps"] += 1
        self._write(timestep.observation, out)
        rewards = timestep.reward
        for group, ids in self._members.items():
            target = out[group, "reward"]
            for i, player in enumerate(ids):
                target[i, 0] = rewards[player]
        terminated = bool(timestep.last())
        return terminated, not terminated and self.max_steps is not None and self._steps >= self.max_steps

    def _write(self, observations: list[dict[str, Any]], out: dict[Any, np.ndarray]) -> None:
        for key, ids, name in self._fields:
            target = out[key]
            for i, player in enumerate(ids):
                target[i] = observations[player][name]
        for key, name in self._world:
            value = observations[0][name]
            write_row(out, key, value if np.shape(value) else np.reshape(value, (1,)))

    def _set_seed(self, seed: int | None) -> None:
        if seed is not None:
            instead = "one seed gives different worlds, so only the random actions of the environment are seeded"
            ignored_argument("MeltingpotWrapper", "set_seed", instead, kind="method")

    # -- the library ----------------------------------------------------------------------------------------------

    @property
    def lib(self) -> Any:
        """The module ``meltingpot``."""
        import meltingpot

        return meltingpot

    def get_rgb_image(self) -> torch.Tensor:
        """Return the current image of the world, ``[height, width, 3]`` uint8."""
        return torch.from_numpy(np.array(self._env.observation()[0][_WORLD + "RGB"]))

    def render(self) -> np.ndarray[Any, Any]:
        """Return the current image of the world, ``[height, width, 3]`` uint8, as a numpy array."""
        return self.get_rgb_image().numpy()

    def __repr__(self) -> str:
        label = self.__dict__.get("substrate_name") or str(self.__dict__.get("_env"))
        return f"{type(self).__name__}({label}, groups={list(self.__dict__.get('group_map', ()))})"


def _shapes(leaves: dict[str, Any]) -> dict[str, tuple[Any, Any]]:
    return {name: (tuple(leaf.shape), leaf.dtype) for name, leaf in leaves.items()}


def _spec(leaf: Any, *size: int) -> Spec:
    """Convert a spec of dm_env; a number is ``[1]``."""
    shape = (*size, *(tuple(leaf.shape) or (1,)))
    dtype = numpy_to_torch_dtype_dict[np.dtype(leaf.dtype)]
    if np.dtype(leaf.dtype) == np.uint8:
        return Bounded(0, 255, shape=shape, dtype=dtype)
    return Unbounded(shape=shape, dtype=dtype)
