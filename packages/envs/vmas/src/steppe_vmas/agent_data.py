"""AgentGroup: the data of some agents of a VMAS environment under one key, and its specs."""

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
    """Agents whose data is stacked under one key, in dimension 1, after that of the environments.

    Args:
        name: the key.
        members: where these agents are in the lists of VMAS.
        n: how many environments there are.

    Attributes:
        heterogeneous: whether the agents' observations or infos differ in keys or shapes. They are then stacked lazily.
    """

    def __init__(self, name: str, members: Sequence[int], n: int) -> None:
        self.name, self.members, self.n = name, list(members), n
        self.heterogeneous = False
        self._dtypes: list[dict[Path, torch.dtype]] = []

    # -- specs ----------------------------------------------------------------------------------------------------

    def observation_spec(self, values: Sequence[dict[Path, torch.Tensor]]) -> Any:
        """The spec of entries that look like those of a reset.

        Args:
            values: entries of each agent of the environment.
        """
        specs = [_unbounded(values[member], self.n) for member in self.members]
        self.heterogeneous = any(spec != specs[0] for spec in specs)
        self._dtypes = [{path: value.dtype for path, value in values[member].items()} for member in self.members]
        return torch.stack(specs, 1)  # type: ignore[arg-type]

    def reward_spec(self, device: torch.device) -> Composite:
        """Rewards ``[n, agents, 1]`` float32."""
        shape = (self.n, len(self.members))
        return Composite(reward=Unbounded(shape=(*shape, 1), dtype=torch.float32, device=device), shape=shape)

    def action_spec(self, spaces: Sequence[Any], *, categorical: bool, device: torch.device) -> Any:
        """The spec of the agents' actions.

        Args:
            spaces: the action space of each agent of the environment.
            categorical: discrete actions are numbers, not one-hot rows.
            device: of the spec.
        """
        leaves = [_action_leaf(spaces[member], categorical, device) for member in self.members]
        specs = [Composite(action=leaf.expand(self.n, *leaf.shape), shape=(self.n,)) for leaf in leaves]
        return torch.stack(specs, 1)  # type: ignore[arg-type]

    # -- data -----------------------------------------------------------------------------------------------------

    def stack(self, values: Sequence[dict[Path, torch.Tensor]]) -> TensorDictBase:
        """The entries of each agent ``[n, ...]`` as a TensorDict ``[n, agents]``."""
        mine = [values[member] for member in self.members]
        if self.heterogeneous:
            cast = [_cast(one, dtypes) for one, dtypes in zip(mine, self._dtypes, strict=True)]
            return LazyStackedTensorDict.lazy_stack([_nested(one, (self.n,)) for one in cast], 1)
        stacked = {path: torch.stack([one[path] for one in mine], 1) for path in mine[0]}
        return _nested(_cast(stacked, self._dtypes[0]), (self.n, len(mine)))

    def actions(self, tensordict: TensorDictBase, *, one_hot: Sequence[list[int] | None]) -> list[torch.Tensor]:
        """Actions ``[n, k]`` of each agent of the group, as VMAS takes them.

        Args:
            tensordict: with the group's action.
            one_hot: for each agent of the environment the sizes of its one-hot parts; None for other actions.
        """
        group = tensordict.get(self.name)
        if isinstance(group, LazyStackedTensorDict) and group.stack_dim == 1:
            given = [one.get("action") for one in group.tensordicts]
        else:
            given = list(group.get("action").unbind(1))
        return [native_action(action, one_hot[member]) for action, member in zip(given, self.members, strict=True)]


def by_agent(values: Any) -> list[Any]:
    """What VMAS gave for each agent, a list or a dict in the order of the agents, as a list."""
    return list(values.values()) if isinstance(values, dict) else list(values)


def leaves_of(value: Any, *path: str) -> Iterator[tuple[Path, torch.Tensor]]:
    """Yield the tensors in nested dicts with their paths; each has a dimension after that of the environments."""
    if isinstance(value, dict):
        for name, child in value.items():
            yield from leaves_of(child, *path, name)
    elif isinstance(value, torch.Tensor):
        yield path, value.unsqueeze(-1) if value.ndim == 1 else value


def native_action(action: torch.Tensor, one_hot: list[int] | None) -> torch.Tensor:
    """An action of the spec as VMAS takes it, ``[n, k]``."""
    if one_hot is None:
        return action if action.ndim > 1 else action.unsqueeze(-1)
    return torch.stack([part.int().argmax(-1) for part in action.split_with_sizes(one_hot, -1)], -1)


def _cast(values: dict[Path, torch.Tensor], dtypes: dict[Path, torch.dtype]) -> dict[Path, torch.Tensor]:
    # Some scenarios count in float32 at a reset and in int64 afterwards. A step brings a reward, which is no surprise.
    return {
        path: value if value.dtype is dtypes.get(path, value.dtype) else value.to(dtypes[path])
        for path, value in values.items()
    }


def _unbounded(values: dict[Path, torch.Tensor], n: int) -> Composite:
    leaves: dict[Any, Any] = {}
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


def _action_leaf(space: Any, categorical: bool, device: torch.device) -> Spec:
    # The spaces are those of the old gym, whatever else is installed; their class names are all that is needed.
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
    raise NotSupported(f"VMAS has actions of Box, Discrete and MultiDiscrete spaces, found {space!r}.")
