"""AgentFacts: which info a policy takes for each row, and which recurrent state it keeps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from tensordict import TensorDict, TensorDictBase

from steppe.errors import InfoError, PolicyError, SpecError
from steppe.specs import CPU, Composite

__all__ = ["AgentFacts", "Declared", "as_infos"]


@dataclass(frozen=True)
class Declared:
    """The declarations of a policy in a worker process."""

    agent_info_spec: Composite | None
    agent_info_default: Any
    agent_state_spec: Composite | None
    methods: frozenset[str]

    @classmethod
    def by(cls, policy: Any) -> Declared:
        """Read them from a policy."""
        return cls(
            getattr(policy, "agent_info_spec", None),
            getattr(policy, "agent_info_default", None),
            getattr(policy, "agent_state_spec", None),
            frozenset(name for name in dir(type(policy)) if not name.startswith("_")),
        )


class AgentFacts:
    """The infos and the recurrent state that a policy declares, whether it is a ``steppe.Agent`` or not.

    Args:
        policy: the policy; None for random actions.
    """

    def __init__(self, policy: Any) -> None:
        self.policy = policy
        self.info_spec: Composite | None = getattr(policy, "agent_info_spec", None)
        self.info_default = getattr(policy, "agent_info_default", None)
        state = getattr(policy, "agent_state_spec", None)
        self.state_keys: list[Any] = [] if state is None else list(state.keys(include_nested=True, leaves_only=True))
        self.state_spec = state

    @property
    def declares(self) -> bool:
        """Whether the policy takes an info for each row, or keeps a state for it."""
        told = self.info_spec is not None and not self.info_spec.is_empty()
        return told or self.info_default is not None or bool(self.state_keys)

    def begin(self, root: TensorDictBase) -> None:
        """Write the initial state of rows that begin an episode."""
        if not self.state_keys:
            return
        make = getattr(self.policy, "initial_state", None)
        assert self.state_spec is not None
        size = root.batch_size
        state = make(root) if callable(make) else self.state_spec.expand(*size).zero()
        for key in self.state_keys:
            leaf, value = self.state_spec[key], state.get(key, None)
            expected = (*size, *leaf.shape)
            if value is None or tuple(value.shape) != expected or value.dtype != leaf.dtype:
                found = "nothing" if value is None else f"{tuple(value.shape)}, {value.dtype}"
                raise SpecError(
                    f"initial_state of {type(self.policy).__name__} must return {key!r} of shape {expected} and dtype "
                    f"{leaf.dtype}, as its agent_state_spec says, found {found}."
                )
        root.set("agent_state", state.select(*self.state_keys))

    def next_state(self, acted: TensorDictBase) -> TensorDictBase | None:
        """Take the next state out of what the policy has written.

        Raises:
            PolicyError: it has not been written.
        """
        following = acted.get("next", None)
        if not self.state_keys:
            return None
        state = None if following is None else following.get("agent_state", None)
        missing = [key for key in self.state_keys if state is None or state.get(key, None) is None]
        if missing or state is None:
            raise PolicyError(
                f"{type(self.policy).__name__} declares the state {self.state_keys}, and has not written "
                f"{[('next', 'agent_state', key) for key in missing]}."
            )
        kept: TensorDictBase = state.select(*self.state_keys)
        return kept

    def default_of(self, asker: str) -> TensorDict | None:
        """Return the default info of the agent: one row for all, or as many rows as it has; None if it takes none.

        Args:
            asker: the subject of the error, such as ``"The request"``.

        Raises:
            InfoError: the agent takes an info and has no default.
        """
        if self.info_default is not None:
            return self.default
        if self.info_spec is not None and not self.info_spec.is_empty():
            raise InfoError(
                f"{asker} needs agent_info with {sorted(map(str, self.info_spec.keys()))}, found none, and "
                f"{type(self.policy).__name__} has no agent_info_default."
            )
        return None

    @property
    def default(self) -> TensorDict | None:
        """The default info: one row for all if its values have the shapes of ``agent_info_spec``."""
        default, spec = self.info_default, self.info_spec
        if default is None:
            return None
        if isinstance(default, TensorDictBase) or spec is None:
            return as_infos(default)
        values = {key: torch.as_tensor(value, device=CPU) for key, value in dict(default).items()}
        if all(key in spec.keys() and value.shape == spec[key].shape for key, value in values.items()):
            return TensorDict(values)
        return as_infos(values)


def as_infos(given: Any) -> TensorDict:
    """Convert infos to a TensorDict ``[rows]``; the first dimension of a dict's values counts the rows."""
    if isinstance(given, TensorDictBase):
        return given.to_tensordict() if given.device is None else given.to(CPU)
    values = {key: torch.as_tensor(value, device=CPU) for key, value in dict(given).items()}
    dims = min((value.ndim for value in values.values()), default=0)
    shape: tuple[int, ...] = ()
    first = next(iter(values.values()), None)
    for at in range(min(dims, 1)):
        shape = (*shape, first.shape[at])  # type: ignore[union-attr]
    for key, value in values.items():
        if value.shape[: len(shape)] != shape:
            raise SpecError(f"The infos have {shape[0]} rows in one entry and {len(value)} in {key!r}.")
    return TensorDict(values, batch_size=shape)
