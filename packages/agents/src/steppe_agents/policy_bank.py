"""PolicyBank: several policies in one request, one of them for each row."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from tensordict import NestedKey, TensorDictBase
from tensordict.nn import TensorDictModuleBase

from steppe.errors import InfoError, PolicyError
from steppe.specs import CPU, Composite, Unbounded

__all__ = ["PolicyBank"]


class PolicyBank(TensorDictModuleBase):
    """A policy that calls several policies, each with the rows that select it.

    Each policy is called once per step. A request selects the policy of each row with ``agent_info={"policy_id":
    ids}``. Ids ``[A, 1]`` and environment infos ``[1, E]`` run all policies in all environments.

    Args:
        policies: policies by number: modules on TensorDicts, agents, or functions of TensorDicts. All must write the
            same entries.
        key: the entry with the number of each row's policy.

    Raises:
        InfoError: a row of a call selects an unknown number.
        PolicyError: the policies write different entries in a call.

    Examples:
        >>> import torch
        >>> from tensordict import TensorDict
        >>> bank = PolicyBank({n: lambda td, n=n: td.set("action", torch.full(td.batch_size, n)) for n in (3, 5)})
        >>> rows = TensorDict({"agent_info": {"policy_id": torch.tensor([5, 3, 5])}}, [3])
        >>> bank(rows)["action"].tolist()
        [5, 3, 5]
    """

    def __init__(
        self, policies: Mapping[int, Callable[..., Any]], key: tuple[str, ...] = ("agent_info", "policy_id")
    ) -> None:
        super().__init__()
        if not policies:
            raise PolicyError("A PolicyBank needs at least one policy, found none.")
        self.policies: dict[int, Callable[[TensorDictBase], TensorDictBase]] = dict(policies)
        self.key = tuple(key)
        for number, policy in self.policies.items():
            if isinstance(policy, torch.nn.Module):
                self.add_module(str(number), policy)  # registered, so that its parameters are moved and updated
        infos, states = Composite({}), Composite({})
        for policy in self.policies.values():
            for spec, attribute in ((infos, "agent_info_spec"), (states, "agent_state_spec")):
                declared = getattr(policy, attribute, None)
                if declared is not None:
                    spec.update(declared)
        if self.key[0] == "agent_info":
            infos.set(self.key[1:], Unbounded((), dtype=torch.int64))
        self.agent_info_spec, self.agent_state_spec = infos, states
        keys: list[Any] = [self.key]
        self.in_keys, self.out_keys = keys, ["action"]

    def forward(self, tensordict: TensorDictBase) -> TensorDictBase:
        """Call each policy with its rows of ``tensordict`` ``[k]``.

        The output of the policies is written into ``tensordict``.
        """
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

    def initial_state(self, tensordict: TensorDictBase) -> TensorDictBase:
        """Return the initial state of each row, from its policy.

        It is zero for policies that declare no state.
        """
        state: TensorDictBase = self.agent_state_spec.expand(
            *tensordict.batch_size, *self.agent_state_spec.shape
        ).zero()
        for number, at in self._rows_of(tensordict):
            begin = getattr(self.policies[number], "initial_state", None)
            if callable(begin):
                for key, value in begin(tensordict[at]).items(True, True):
                    target: Any = state.get(key)
                    target[at] = value
        return state

    def _rows_of(self, tensordict: TensorDictBase) -> list[tuple[int, torch.Tensor]]:
        """Return each number that rows select, with the indices of these rows."""
        numbers = tensordict.get(self.key).reshape(-1)
        selected = numbers.unique().tolist()
        unknown = [number for number in selected if number not in self.policies]
        if unknown:
            raise InfoError(
                f"Rows select {'.'.join(self.key)} {unknown}, but the PolicyBank has {sorted(self.policies)}."
            )
        return [(number, (numbers == number).nonzero().squeeze(-1).to(CPU)) for number in selected]
