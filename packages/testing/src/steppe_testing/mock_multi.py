"""Counting environments of several agents, groups and keys."""

from __future__ import annotations

from typing import Any

import torch
from tensordict import TensorDict, TensorDictBase, lazy_stack

from steppe.envs import EnvBase
from steppe.specs import Binary, Composite, StackedComposite, Unbounded

from .mock_actions import action_leaf, action_number

__all__ = [
    "HeterogeneousCountingEnv",
    "MultiAgentCountingEnv",
    "MultiKeyCountingEnv",
    "NestedCountingEnv",
    "NestedResetEnv",
]


def _done_leaves(shape: tuple[int, ...]) -> dict[str, Any]:
    return {name: Binary(shape=shape, dtype=torch.bool) for name in ("done", "terminated", "truncated")}


def _done_data(ended: torch.Tensor) -> dict[str, torch.Tensor]:
    return {"done": ended, "terminated": ended.clone(), "truncated": torch.zeros_like(ended)}


class NestedCountingEnv(EnvBase):
    """An environment that counts the steps of each agent of a group.

    The data of agents is below the key ``group``.

    Data: ``(group, "observation")``, ``(group, "reward")``: ``[*B, n_agents, 1]`` float32; ``(group, "action")``:
    ``[*B, n_agents, 3]``; done entries ``[*B, n_agents, 1]`` in the group, ``[*B, 1]`` at the root, or both. Each agent
    counts its own steps; agent ``i`` ends after ``max_steps + spread * i``. The root ends with the first agent that
    ends (``"any"``), or with the last one (``"all"``).

    >>> from steppe_testing import NestedCountingEnv
    >>> env = NestedCountingEnv(max_steps=2, n_agents=3, spread=1, root_done="all")
    >>> env.rollout(10)["next", "agents", "done"].squeeze(-1).int()
    tensor([[0, 0, 0],
            [1, 0, 0],
            [1, 1, 0],
            [1, 1, 1]], dtype=torch.int32)

    Args:
        max_steps: length of the first agent's episode.
        n_agents: size of the group.
        group: name of the group.
        batch_size: leading dimensions.
        spread: number of steps by which each agent lasts longer than the one before.
        root_done: ``"any"``, ``"all"``, or None for no done entries at the root.
        group_done: whether the group has done entries; without them ``root_done`` is ``"any"``.
        action: a kind of action.
        **kwargs: arguments of :class:`~steppe.envs.EnvBase`.
    """

    def __init__(
        self,
        max_steps: int = 5,
        *,
        n_agents: int = 2,
        group: str = "agents",
        batch_size: tuple[int, ...] = (),
        spread: int = 0,
        root_done: str | None = None,
        group_done: bool = True,
        action: str = "one_hot",
        **kwargs: Any,
    ) -> None:
        super().__init__(batch_size=batch_size, **kwargs)
        if root_done is None and not group_done:
            root_done = "any"
        self.group, self.root_done, self.group_done, self.action_kind = group, root_done, group_done, action
        self.n_agents = n_agents
        rows = (*batch_size, n_agents)
        self.observation_spec = self._grouped({"observation": Unbounded((*rows, 1))}, rows)
        self.action_spec = self._grouped({"action": action_leaf(action, rows)}, rows)
        self.reward_spec = self._grouped({"reward": Unbounded((*rows, 1))}, rows)
        done: dict[str, Any] = _done_leaves((*batch_size, 1)) if root_done else {}
        if group_done:
            done[group] = Composite(_done_leaves((*rows, 1)), shape=rows)
        self.full_done_spec = Composite(done, shape=batch_size)
        self.count = torch.zeros((*rows, 1), dtype=torch.int64, device="cpu")
        self.limit = (max_steps + spread * torch.arange(n_agents, device="cpu")).reshape(n_agents, 1).expand(*rows, 1)

    def _grouped(self, entries: dict[str, Any], rows: tuple[int, ...]) -> Composite:
        return Composite({self.group: Composite(entries, shape=rows)}, shape=self.batch_size)

    def _data(self, entries: dict[str, torch.Tensor]) -> TensorDict:
        inner = TensorDict({"observation": self.count.float(), **entries}, self.count.shape[:-1], self.device)
        data = TensorDict({self.group: inner}, self.batch_size, self.device)
        ended = self.count >= self.limit
        if self.group_done:
            inner.update(_done_data(ended))
        if self.root_done:
            root_ended = ended.any(-2) if self.root_done == "any" else ended.all(-2)
            data.update(_done_data(root_ended))
        return data

    def _reset(self, tensordict: TensorDictBase | None = None, **kwargs: Any) -> TensorDictBase:
        rows = torch.ones_like(self.count, dtype=torch.bool)
        if tensordict is not None:
            root = tensordict.get("_reset", None)
            inner = tensordict.get((self.group, "_reset"), None)
            if root is not None:
                rows = root.reshape(*self.batch_size, 1, 1).expand(rows.shape)
            elif inner is not None:
                rows = inner.reshape(rows.shape)
        self.count = torch.where(rows, 0, self.count)
        return self._data({})

    def _step(self, tensordict: TensorDictBase) -> TensorDictBase:
        rows = tensordict.get("_step", None)
        step = 1 if rows is None else rows.reshape(*self.batch_size, 1, 1).expand(self.count.shape).long()
        self.count = self.count + step
        action = tensordict.get((self.group, "action"))
        return self._data({"reward": action_number(self.action_kind, action)})

    def _set_seed(self, seed: int | None) -> None:
        """Nothing is random."""


class MultiAgentCountingEnv(NestedCountingEnv):
    """A :class:`NestedCountingEnv` like the environments of multi-agent libraries.

    Three agents end one after the other, and the root ends with the last one.

    >>> from steppe_testing import MultiAgentCountingEnv
    >>> MultiAgentCountingEnv().rollout(2)["next", "agents", "reward"].shape
    torch.Size([2, 3, 1])

    Args:
        max_steps: length of the first agent's episode.
        n_agents: size of the group.
        **kwargs: arguments of :class:`NestedCountingEnv`.
    """

    def __init__(self, max_steps: int = 5, *, n_agents: int = 3, **kwargs: Any) -> None:
        super().__init__(max_steps, n_agents=n_agents, **{"spread": 1, "root_done": "all", **kwargs})


class NestedResetEnv(NestedCountingEnv):
    """A :class:`NestedCountingEnv` whose root and agents end at different times.

    It shows which mask a reset follows: that of the root.

    >>> from steppe_testing import NestedResetEnv
    >>> data = NestedResetEnv().rollout(6, break_when_any_done=False)
    >>> data["next", "done"].flatten().int(), data["next", "agents", "done"][:, 0].flatten().int()
    (tensor([0, 0, 0, 0, 1, 0], dtype=torch.int32), tensor([0, 0, 1, 1, 1, 0], dtype=torch.int32))
    """

    def __init__(self, max_steps: int = 3, **kwargs: Any) -> None:
        super().__init__(max_steps, **{"n_agents": 2, "spread": 2, "root_done": "all", **kwargs})


class MultiKeyCountingEnv(EnvBase):
    """A counting environment with groups that end separately.

    Each group has an action, a reward and done entries; the root has an action and a reward.

    Data: at the root ``observation`` and ``reward`` ``[*B, 1]`` and ``action`` ``[*B]`` (categorical); in group ``g``
    the same below ``g``, action one-hot. Group ``g`` ends after ``max_steps[g]`` steps. There is no done entry at the
    root: each group is reset by its own mask, and the entries of the root by a mask at the root or without any mask.

    >>> from steppe_testing import MultiKeyCountingEnv
    >>> env = MultiKeyCountingEnv()
    >>> list(env.full_action_spec.keys(True, True))
    ['action', ('left', 'action'), ('right', 'action')]

    Args:
        max_steps: ``{group: steps}``.
        batch_size: leading dimensions.
        **kwargs: arguments of :class:`~steppe.envs.EnvBase`.
    """

    def __init__(
        self, max_steps: dict[str, int] | None = None, *, batch_size: tuple[int, ...] = (), **kwargs: Any
    ) -> None:
        super().__init__(batch_size=batch_size, **kwargs)
        self.max_steps = {"left": 3, "right": 5} if max_steps is None else dict(max_steps)
        shape = (*batch_size, 1)

        def per_group(leaf: dict[str, Any], root: dict[str, Any]) -> Composite:
            groups = {
                name: Composite({k: v.clone() for k, v in leaf.items()}, shape=batch_size) for name in group_names
            }
            return Composite({**root, **groups}, shape=batch_size)

        group_names = list(self.max_steps)
        observation = {"observation": Unbounded(shape)}
        self.observation_spec = per_group(observation, {"observation": Unbounded(shape)})
        self.reward_spec = per_group({"reward": Unbounded(shape)}, {"reward": Unbounded(shape)})
        self.action_spec = per_group(
            {"action": action_leaf("one_hot", batch_size)}, {"action": action_leaf("categorical", batch_size)}
        )
        self.full_done_spec = per_group(_done_leaves(shape), {})
        self.counts = {name: torch.zeros(shape, dtype=torch.int64, device="cpu") for name in ("", *group_names)}

    def _data(self) -> TensorDict:
        data = TensorDict({"observation": self.counts[""].float()}, self.batch_size, self.device)
        for name, limit in self.max_steps.items():
            count = self.counts[name]
            inner = {"observation": count.float(), **_done_data(count >= limit)}
            data[name] = TensorDict(inner, self.batch_size, self.device)
        return data

    def _reset(self, tensordict: TensorDictBase | None = None, **kwargs: Any) -> TensorDictBase:
        masks = {}
        for name in self.counts:
            mask = None
            if tensordict is not None:
                mask = tensordict.get("_reset", None)
                if mask is None and name:
                    mask = tensordict.get((name, "_reset"), None)
            masks[name] = mask
        partial = any(mask is not None for mask in masks.values())
        for name, count in self.counts.items():
            mask = masks[name]
            if mask is not None:
                self.counts[name] = torch.where(mask.reshape(count.shape), 0, count)
            elif name or not partial:
                self.counts[name] = torch.zeros_like(count)
        return self._data()

    def _step(self, tensordict: TensorDictBase) -> TensorDictBase:
        rows = tensordict.get("_step", None)
        step = 1 if rows is None else rows.unsqueeze(-1).long()
        self.counts = {name: count + step for name, count in self.counts.items()}
        data = self._data()
        data["reward"] = action_number("categorical", tensordict["action"])
        for name in self.max_steps:
            data[name, "reward"] = action_number("one_hot", tensordict[name, "action"])
        return data

    def _set_seed(self, seed: int | None) -> None:
        """Nothing is random."""


class HeterogeneousCountingEnv(EnvBase):
    """Three agents with different observations, stacked lazily under ``agents``.

    Data of agent ``i``: ``observation`` ``[*B, i + 1]`` and ``own_i`` ``[*B, 2]`` float32, both filled with the count;
    ``action`` ``[*B, 3]`` one-hot; ``reward`` ``[*B, 1]``. Done entries are at the root.

    >>> from steppe_testing import HeterogeneousCountingEnv
    >>> data = HeterogeneousCountingEnv().reset()
    >>> [agent["observation"].shape for agent in data["agents"].unbind(0)]
    [torch.Size([1]), torch.Size([2]), torch.Size([3])]

    Args:
        max_steps: length of an episode.
        batch_size: leading dimensions.
        **kwargs: arguments of :class:`~steppe.envs.EnvBase`.
    """

    def __init__(self, max_steps: int = 5, *, batch_size: tuple[int, ...] = (), **kwargs: Any) -> None:
        super().__init__(batch_size=batch_size, **kwargs)
        self.max_steps = max_steps
        self.n_agents = 3
        dim = len(batch_size)
        agent_specs = [
            Composite(
                {"observation": Unbounded((*batch_size, i + 1)), f"own_{i}": Unbounded((*batch_size, 2))},
                shape=batch_size,
            )
            for i in range(self.n_agents)
        ]
        rows = (*batch_size, self.n_agents)
        self.observation_spec = Composite(agents=StackedComposite(*agent_specs, dim=dim), shape=batch_size)
        self.action_spec = Composite(
            agents=Composite(action=action_leaf("one_hot", rows), shape=rows), shape=batch_size
        )
        self.reward_spec = Composite(agents=Composite(reward=Unbounded((*rows, 1)), shape=rows), shape=batch_size)
        self.count = torch.zeros((*batch_size, 1), dtype=torch.int64, device="cpu")

    def _data(self) -> TensorDict:
        size, count = self.batch_size, self.count.float()
        agents = [
            TensorDict(
                {"observation": count.expand(*size, i + 1).clone(), f"own_{i}": count.expand(*size, 2).clone()},
                size,
                self.device,
            )
            for i in range(self.n_agents)
        ]
        return TensorDict({"agents": lazy_stack(agents, len(size))}, size, self.device)

    def _reset(self, tensordict: TensorDictBase | None = None, **kwargs: Any) -> TensorDictBase:
        mask = tensordict.get("_reset", None) if tensordict is not None else None
        self.count = torch.zeros_like(self.count) if mask is None else torch.where(mask, 0, self.count)
        return self._data()

    def _step(self, tensordict: TensorDictBase) -> TensorDictBase:
        rows = tensordict.get("_step", None)
        self.count = self.count + (1 if rows is None else rows.unsqueeze(-1).long())
        data = self._data()
        data["agents", "reward"] = action_number("one_hot", tensordict["agents", "action"])
        data["terminated"] = self.count >= self.max_steps
        return data

    def _set_seed(self, seed: int | None) -> None:
        """Nothing is random."""
