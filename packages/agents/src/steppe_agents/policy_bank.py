"""PolicyBank: several policies in one request, one of them for each row."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from tensordict import NestedKey, TensorDictBase
from tensordict.nn import TensorDictModuleBase

from steppe.errors import InfoError, PolicyError
from steppe.specs import CPU, Composite, Unbounded
from steppe_agents.agent_view import AgentView
from steppe_agents.stacked_policies import StackedPolicies

__all__ = ["PolicyBank"]


class PolicyBank(TensorDictModuleBase):
    """A policy that calls several policies, each with the rows that select it.

    A request selects the policy of each row with ``agent_info={"policy_id": ids}``, or with ``agent_info=bank.select(
    names)``. Ids ``[A, 1]`` and environment infos ``[1, E]`` run all policies in all environments.

    Policies that differ in the values of their parameters only are evaluated together, by
    ``torch.func.stack_module_state`` and ``vmap``: TensorDictModules of equal modules without buffers, hooks and state.
    Other policies are called one after another, once per step.

    Args:
        policies: policies by number or by name: modules on TensorDicts, agents, or functions of TensorDicts. All must
            write the same entries. The numbers of names are 0, 1, 2, in their order.
        key: the entry with the number of each row's policy.

    Attributes:
        policies: the policies by number.
        names: the numbers by the names, or the numbers themselves.

    Raises:
        InfoError: a row of a call selects an unknown number.
        PolicyError: the policies write different entries in a call.

    Examples:
        >>> import torch
        >>> from steppe import PolicyBank
        >>> from tensordict import TensorDict
        >>> bank = PolicyBank({n: lambda td, n=n: td.set("action", torch.full(td.batch_size, n)) for n in (3, 5)})
        >>> rows = TensorDict({"agent_info": {"policy_id": torch.tensor([5, 3, 5])}}, [3])
        >>> bank(rows)["action"].tolist()
        [5, 3, 5]
        >>> named = PolicyBank({"old": bank.policies[3], "new": bank.policies[5]})
        >>> named.select(["new", "new", "old"])
        {'policy_id': tensor([1, 1, 0])}
    """

    def __init__(
        self,
        policies: Mapping[int, Callable[..., Any]] | Mapping[str, Callable[..., Any]],
        key: tuple[str, ...] = ("agent_info", "policy_id"),
    ) -> None:
        super().__init__()
        if not policies:
            raise PolicyError("A PolicyBank needs at least one policy, found none.")
        named: dict[Any, Callable[..., Any]] = dict(policies)
        kinds = {type(name) for name in named}
        if kinds not in ({int}, {str}):
            raise PolicyError(f"The policies of a PolicyBank have numbers or names, found {list(named)}.")
        self.names: dict[int | str, int] = {
            name: name if isinstance(name, int) else number for number, name in enumerate(named)
        }
        self.policies: dict[int, Callable[[TensorDictBase], TensorDictBase]] = {
            self.names[name]: policy for name, policy in named.items()
        }
        self.key = tuple(key)
        for number, policy in self.policies.items():
            if isinstance(policy, torch.nn.Module):
                self.add_module(str(number), policy)  # registered, so that its parameters are moved and updated
        self._agents = {number: AgentView(policy) for number, policy in self.policies.items()}
        infos, states = Composite({}), Composite({})
        for agent in self._agents.values():
            infos.update(agent.info_spec)
            states.update(agent.state_spec)
        if self.key[0] == "agent_info":
            infos.set(self.key[1:], Unbounded((), dtype=torch.int64))
        self.agent_info_spec, self.agent_state_spec = infos, states
        keys: list[Any] = [self.key]
        self.in_keys, self.out_keys = keys, ["action"]
        members = list(self.policies.values())
        self._stacked = StackedPolicies(members) if StackedPolicies.agree(members) else None

    @property
    def is_stacked(self) -> bool:
        """Whether all policies are evaluated in one call."""
        return self._stacked is not None

    def select(self, names: Sequence[int | str]) -> dict[str, torch.Tensor]:
        """Return the ``agent_info`` that selects a policy for each row.

        Args:
            names: the name or number of each row's policy.

        Raises:
            InfoError: a name is unknown, or the bank reads the number from another entry than an info.
        """
        unknown = [name for name in names if name not in self.names]
        if unknown:
            raise InfoError(f"The PolicyBank has no policy {unknown[0]!r}, but {list(self.names)}.")
        if len(self.key) != 2 or self.key[0] != "agent_info":
            raise InfoError(f"This PolicyBank reads the number of a policy from {self.key}, which is no agent_info.")
        return {self.key[1]: torch.tensor([self.names[name] for name in names], device=CPU)}

    def forward(self, tensordict: TensorDictBase) -> TensorDictBase:
        """Call each policy with its rows of ``tensordict`` ``[k]``.

        The output of the policies is written into ``tensordict``.
        """
        if self._stacked is not None:
            return self._evaluate_stacked(self._stacked, tensordict)
        outputs: dict[NestedKey, Any] = {}
        written: set[NestedKey] | None = None
        for number, at in self._rows_of(tensordict):
            rows = tensordict[at]
            before = dict(rows.items(True, True))
            acted = self.policies[number](rows)
            output = {key: value for key, value in acted.items(True, True) if before.get(key) is not value}
            if written is not None and written != set(output):
                raise PolicyError(
                    f"The policies of a PolicyBank must write the same entries, but policy {number} writes "
                    f"{sorted(map(str, output))}, others {sorted(map(str, written))}."
                )
            written = set(output)
            for key, value in output.items():
                if key not in outputs:
                    outputs[key] = value.new_zeros(torch.Size((len(tensordict), *value.shape[1:])))
                outputs[key][at] = value
        for entry, values in outputs.items():
            tensordict.set(entry, values)
        return tensordict

    def _evaluate_stacked(self, stacked: StackedPolicies, tensordict: TensorDictBase) -> TensorDictBase:
        """Evaluate all policies at once: each with as many rows as the policy with most rows has."""
        index, rows = self._indices(tensordict), torch.arange(len(tensordict), device=CPU)
        counts = index.bincount(minlength=len(self.policies))
        order = index.argsort(stable=True)
        place = torch.empty_like(index)  # of each row among the rows of its policy
        place[order] = rows - (counts.cumsum(0) - counts)[index[order]]
        most = int(counts.max())
        # Places without a row of their own repeat row 0, whose result is dropped.
        at = torch.zeros(len(self.policies), most, dtype=torch.int64, device=CPU)
        at[index, place] = rows
        for key, values in zip(stacked.out_keys, stacked(tensordict, at), strict=True):
            tensordict.set(key, values[index, place])
        return tensordict

    def initial_state(self, tensordict: TensorDictBase) -> TensorDictBase:
        """Return the initial state of each row, from its policy.

        It is zero for policies that declare no state.
        """
        state: TensorDictBase = self.agent_state_spec.expand(
            *tensordict.batch_size, *self.agent_state_spec.shape
        ).zero()
        for number, at in self._rows_of(tensordict):
            agent = self._agents[number]
            if agent.begins_with_zeros:
                continue
            for key, value in agent.initial_state(tensordict[at]).items(True, True):
                target: Any = state.get(key)
                target[at] = value
        return state

    def _indices(self, tensordict: TensorDictBase) -> torch.Tensor:
        """Return for each row the index of its policy in the order of the bank, ``[k]``.

        Raises:
            InfoError: a row selects an unknown number.
        """
        numbers: torch.Tensor = tensordict.get(self.key).reshape(-1).to(CPU)
        matches = numbers.unsqueeze(-1) == torch.tensor(list(self.policies), device=CPU)
        if not bool(matches.any(-1).all()):
            unknown = sorted(set(numbers[~matches.any(-1)].tolist()))
            raise InfoError(
                f"Rows select {'.'.join(self.key)} {unknown}, but the PolicyBank has {sorted(self.policies)}."
            )
        return matches.int().argmax(-1)

    def _rows_of(self, tensordict: TensorDictBase) -> list[tuple[int, torch.Tensor]]:
        """Return each number that rows select, with the indices of these rows."""
        index, numbers = self._indices(tensordict), list(self.policies)
        return [(numbers[each], (index == each).nonzero().squeeze(-1)) for each in sorted(set(index.tolist()))]
