"""AgentGroup: data and specs of the agents that share one key."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from tensordict import LazyStackedTensorDict, TensorDict, TensorDictBase

from steppe.errors import NotSupported
from steppe.specs import Bounded, Categorical, Composite, MultiCategorical, MultiOneHot, OneHot, Spec, Unbounded
from steppe.storage import build_td

__all__ = ["AgentGroup", "by_agent", "leaves_of"]

Path = tuple[str, ...]


class AgentGroup:
    """Agents whose data is stacked under one key.

    The data is stacked in dimension 1, after the batch dimension.

    Args:
        name: the key.
        members: indices of these agents in the lists of VMAS.
        n: number of environments.

    Attributes:
        heterogeneous: whether the agents' observations or infos differ in keys or shapes, and are stacked lazily.
    """

    def __init__(self, name: str, members: Sequence[int], n: int) -> None:
        self.name, self.members, self.n = name, list(members), n
        self.heterogeneous = False
        self._dtypes: list[dict[Path, torch.dtype]] = []

    # -- specs ----------------------------------------------------------------------------------------------------

    def observation_spec(self, values: Sequence[dict[Path, torch.Tensor]]) -> Any:
        """Build the observation spec from the entries of a reset.

        Args:
            values: the entries of each agent of the environment, by path.
        """
        specs = [_unbounded(values[member], self.n) for member in self.members]
        self.heterogeneous = any(spec != specs[0] for spec in specs)
        self._dtypes = [{path: value.dtype for path, value in values[member].items()} for member in self.members]
        return torch.stack(specs, 1)  # type: ignore[arg-type]

    def reward_spec(self, device: torch.device) -> Composite:
        """Build the reward spec, ``[n, agents, 1]`` float32."""
        shape = (self.n, len(self.members))
        return Composite(reward=Unbounded(shape=(*shape, 1), dtype=torch.float32, device=device), shape=shape)

    def action_spec(self, spaces: Sequence[Any], *, categorical: bool, device: torch.device) -> Any:
        """Build the action spec.

        Args:
            spaces: the action space of each agent of the environment.
            categorical: discrete actions are integers instead of one-hot vectors.
            device: device of the spec.
        """
        leaves = [_action_spec(spaces[member], categorical, device) for member in self.members]
        specs = [Composite(action=leaf.expand(self.n, *leaf.shape), shape=(self.n,)) for leaf in leaves]
        return torch.stack(specs, 1)  # type: ignore[arg-type]

    # -- data -----------------------------------------------------------------------------------------------------

    def stack(self, values: Sequence[dict[Path, torch.Tensor]]) -> TensorDictBase:
        """Stack the entries ``[n, ...]`` of the group's agents.

        The result is a TensorDict ``[n, agents]``.
        """
        members = [values[member] for member in self.members]
        if self.heterogeneous:
            cast = [_cast(agent, dtypes) for agent, dtypes in zip(members, self._dtypes, strict=True)]
            return LazyStackedTensorDict.lazy_stack([_nested(agent, (self.n,)) for agent in cast], 1)
        stacked = {path: torch.stack([agent[path] for agent in members], 1) for path in members[0]}
        return _nested(_cast(stacked, self._dtypes[0]), (self.n, len(members)))

    def actions(self, tensordict: TensorDictBase, *, one_hot: Sequence[list[int] | None]) -> list[torch.Tensor]:
        """Return the actions of the group's agents in the format of VMAS, each ``[n, k]``.

        Args:
            tensordict: data with the action of the group.
            one_hot: for each agent of the environment, the sizes of its one-hot parts; None for other actions.
        """
        group = tensordict.get(self.name)
        if isinstance(group, LazyStackedTensorDict) and group.stack_dim == 1:
            actions = [agent.get("action") for agent in group.tensordicts]
        else:
            actions = list(group.get("action").unbind(1))
        return [decode_action(action, one_hot[member]) for action, member in zip(actions, self.members, strict=True)]


def by_agent(values: Any) -> list[Any]:
    """Convert VMAS's values of all agents to a list.

    The values are a list, or a dict in the order of the agents.
    """
    return list(values.values()) if isinstance(values, dict) else list(values)


def leaves_of(value: Any, *path: str) -> Iterator[tuple[Path, torch.Tensor]]:
    """Yield path and tensor of each leaf of nested dicts.

    Tensors ``[n]`` get a second dimension, ``[n, 1]``.
    """
    if isinstance(value, dict):
        for name, child in value.items():
            yield from leaves_of(child, *path, name)
    elif isinstance(value, torch.Tensor):
        yield path, value.unsqueeze(-1) if value.ndim == 1 else value


def decode_action(action: torch.Tensor, one_hot: list[int] | None) -> torch.Tensor:
    """Convert an action of the spec to the format of VMAS, ``[n, k]``."""
    if one_hot is None:
        return action if action.ndim > 1 else action.unsqueeze(-1)
    return torch.stack([part.int().argmax(-1) for part in action.split_with_sizes(one_hot, -1)], -1)


def _cast(values: dict[Path, torch.Tensor], dtypes: dict[Path, torch.dtype]) -> dict[Path, torch.Tensor]:
    # Some scenarios return a count as float32 at a reset and as int64 in steps. Paths that a reset lacks, such as the
    # reward, keep their dtype.
    return {
        path: value if value.dtype is dtypes.get(path, value.dtype) else value.to(dtypes[path])
        for path, value in values.items()
    }


def _unbounded(values: dict[Path, torch.Tensor], n: int) -> Composite:
    leaves: dict[str, Any] = {}
    for path, value in values.items():
        level = leaves
        for name in path[:-1]:
            level = level.setdefault(name, {})
        level[path[-1]] = Unbounded(shape=value.shape, dtype=value.dtype, device=value.device)
    return _composite(leaves, n)


def _composite(leaves: dict[str, Any], n: int) -> Composite:
    children = {name: _composite(child, n) if isinstance(child, dict) else child for name, child in leaves.items()}
    return Composite(children, shape=(n,))


def _nested(values: dict[Path, torch.Tensor], batch_size: tuple[int, ...]) -> TensorDict:
    if all(len(path) == 1 for path in values):
        return build_td({path[0]: value for path, value in values.items()}, torch.Size(batch_size))
    data = TensorDict({}, batch_size)
    for path, value in values.items():
        data.set(path, value)
    return data


def _action_spec(space: Any, categorical: bool, device: torch.device) -> Spec:
    # VMAS uses spaces of the old gym, so they are recognized by class name, without importing gym.
    kind = type(space).__name__
    if kind == "Box":
        low, high = (torch.as_tensor(bound, device=device) for bound in (space.low, space.high))
        return Bounded(low, high, shape=space.shape, dtype=torch.float32, device=device)
    if kind == "Discrete":
        n = int(space.n)
        return Categorical(n, device=device) if categorical else OneHot(n, device=device)
    if kind == "MultiDiscrete":
        sizes = [int(n) for n in space.nvec]
        return MultiCategorical(sizes, device=device) if categorical else MultiOneHot(sizes, device=device)
    raise NotSupported(f"The action space of an agent must be a Box, Discrete or MultiDiscrete, found {space!r}.")
