"""Many policies in one request: each row says which acts in it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from tensordict import TensorDictBase
from tensordict.nn import TensorDictModuleBase

from steppe.errors import InfoError, PolicyError
from steppe.specs import CPU, Composite, Unbounded

__all__ = ["PolicyBank"]


class PolicyBank(TensorDictModuleBase):
    """Calls each of several policies once a step, with the rows that ask for it.

    A request says which, ``agent_info={"policy_id": ids}``; with ``[A, 1]`` ids and ``[1, E]`` environments it is a
    table of policies by environments.

    Args:
        policies: what acts, by number: modules on TensorDicts, agents, or functions of TensorDicts. All write the same
            entries.
        key: where the number of a row is.

    Raises:
        InfoError: in a call: a row asks for a number that there is not.
        PolicyError: in a call: policies write different entries.

    Examples:
        >>> import torch
        >>> from tensordict import TensorDict
        >>> bank = PolicyBank({n: lambda td, n=n: td.set("action", torch.full(td.batch_size, n)) for n in (3, 5)})
        >>> rows = TensorDict({"agent_info": {"policy_id": torch.tensor([5, 3, 5])}}, [3])
        >>> bank(rows)["action"].tolist()
        [5, 3, 5]
    """

    def __init__(self, policies: Mapping[int, Any], key: tuple[str, ...] = ("agent_info", "policy_id")) -> None:
        super().__init__()
        if not policies:
            raise PolicyError("A PolicyBank has at least one policy, found none.")
        self.policies: dict[int, Callable[[TensorDictBase], TensorDictBase]] = dict(policies)
        self.key = tuple(key)
        for number, policy in self.policies.items():
            if isinstance(policy, torch.nn.Module):
                self.add_module(str(number), policy)  # parameters are found, moved and updated
        infos, states = Composite({}), Composite({})
        for policy in self.policies.values():
            for spec, own in ((infos, "agent_info_spec"), (states, "agent_state_spec")):
                declared = getattr(policy, own, None)
                if declared is not None:
                    spec.update(declared)
        if self.key[0] == "agent_info":
            infos.set(self.key[1:], Unbounded((), dtype=torch.int64))
        self.agent_info_spec, self.agent_state_spec = infos, states
        keys: list[Any] = [self.key]
        self.in_keys, self.out_keys = keys, ["action"]

    def forward(self, tensordict: TensorDictBase) -> TensorDictBase:
        """Let each policy act in its rows ``[k]``."""
        found: dict[Any, Any] = {}
        written: set[Any] | None = None
        for number, at in self._rows_of(tensordict):
            given = tensordict[at]
            before = dict(given.items(True, True))
            acted = self.policies[number](given)
            own = {key: value for key, value in acted.items(True, True) if before.get(key) is not value}
            if written is not None and written != set(own):
                raise PolicyError(
                    f"The policies of a PolicyBank write the same entries; policy {number} writes "
                    f"{sorted(map(str, own))}, others {sorted(map(str, written))}."
                )
            written = set(own)
            for key, value in own.items():
                if key not in found:
                    found[key] = value.new_zeros(torch.Size((len(tensordict), *value.shape[1:])))
                found[key][at] = value
        for key, value in found.items():
            tensordict.set(key, value)
        return tensordict

    def initial_state(self, tensordict: TensorDictBase) -> TensorDictBase:
        """The state of rows that begin an episode, each from its policy; zeros for policies that declare none."""
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
        numbers = tensordict.get(self.key).reshape(-1)
        asked = numbers.unique().tolist()
        unknown = [number for number in asked if number not in self.policies]
        if unknown:
            raise InfoError(
                f"Rows ask for {'.'.join(self.key)} {unknown}, and the PolicyBank has {sorted(self.policies)}."
            )
        return [(number, (numbers == number).nonzero().squeeze(-1).to(CPU)) for number in asked]
