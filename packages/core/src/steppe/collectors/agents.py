"""Agents: policies that say what they are told about each row, and what they remember of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from tensordict import TensorDict, TensorDictBase
from tensordict.nn import TensorDictModuleBase

from steppe.errors import InfoError, PolicyError, SpecError
from steppe.specs import CPU, Composite

__all__ = ["Agent", "AgentFacts", "Declared", "as_infos", "check_infos"]


class Agent(TensorDictModuleBase):
    """A policy that may be told something about each row, and remember something of it, in requests and in batches.

    An ordinary policy needs none of this, and any class with these attributes will do.

    ``forward`` is called with data of the rows that are at work ``[k]``: observations, ``("agent_info", ...)`` of the
    request, ``("agent_state", ...)``, and ``"is_init"``. It writes actions, whatever else is to be kept, and the next
    state at ``("next", "agent_state", ...)``.

    Attributes:
        agent_info_spec: what a request says of each row; shapes of one row.
        agent_info_default: values where a request says nothing, and of all batches; None where a request has to say.
        agent_state_spec: what is remembered of each row; shapes of one row.
    """

    agent_info_spec: Composite = Composite({})
    agent_info_default: TensorDictBase | dict[str, Any] | None = None
    agent_state_spec: Composite = Composite({})
    in_keys: ClassVar[list[Any]] = []
    out_keys: ClassVar[list[Any]] = ["action"]

    def initial_state(self, tensordict: TensorDictBase) -> TensorDictBase:
        """The state of rows that begin an episode.

        Args:
            tensordict: their first observations, ``agent_info`` and ``env_info``, ``[k]``.

        Returns:
            Data of ``agent_state_spec`` ``[k]``; zeros, unless a subclass says otherwise.
        """
        zeros: TensorDictBase = self.agent_state_spec.expand(
            *tensordict.batch_size, *self.agent_state_spec.shape
        ).zero()
        return zeros


@dataclass(frozen=True)
class Declared:
    """What a policy in another process declares."""

    agent_info_spec: Composite | None
    agent_info_default: Any
    agent_state_spec: Composite | None
    methods: frozenset[str]

    @classmethod
    def by(cls, policy: Any) -> Declared:
        """Take it from a policy."""
        return cls(
            getattr(policy, "agent_info_spec", None),
            getattr(policy, "agent_info_default", None),
            getattr(policy, "agent_state_spec", None),
            frozenset(name for name in dir(type(policy)) if not name.startswith("_")),
        )


class AgentFacts:
    """What a policy declares of itself, whether it is an :class:`Agent` or not.

    Args:
        policy: what acts; None for random actions.
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
        """Whether the policy is told something of each row, or remembers something of it."""
        told = self.info_spec is not None and not self.info_spec.is_empty()
        return told or self.info_default is not None or bool(self.state_keys)

    def begin(self, root: TensorDictBase) -> None:
        """Write the initial state of rows that begin."""
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

    def infos(self, given: Any, what: str) -> TensorDict | None:
        """What a request says to agents, held against what is declared.

        Raises:
            InfoError: an entry is missing or unknown.
        """
        if given is None:
            if self.info_default is not None:
                return self.default
            if self.info_spec is not None and not self.info_spec.is_empty():
                raise InfoError(
                    f"{what} needs agent_info with {sorted(map(str, self.info_spec.keys()))}, found none, and "
                    f"{type(self.policy).__name__} has no agent_info_default."
                )
            return None
        infos = as_infos(given)
        if self.info_spec is not None:
            check_infos("agent_info", infos, self.info_spec, f"the agent_info_spec of {type(self.policy).__name__}")
        return infos

    @property
    def default(self) -> TensorDict | None:
        """What rows are told of which a request says nothing: one row for all, where the values have its shapes."""
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
    """Infos as a TensorDict whose batch dimensions are those of a request: of a dict, the first of its values."""
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


def check_infos(name: str, infos: TensorDictBase, spec: Composite, whose: str) -> None:
    """Hold infos against a spec of one row.

    Raises:
        InfoError: an entry is missing or unknown.
        SpecError: one has another shape or dtype.
    """
    expected = {key if isinstance(key, str) else tuple(key) for key in spec.keys(True, True)}
    found = set(infos.keys(True, True))
    if expected != found:
        raise InfoError(
            f"{name} must have {sorted(map(str, expected))}, as {whose} says, found {sorted(map(str, found))}."
        )
    for key in found:
        leaf, value = spec[key], infos.get(key)
        if value.dtype != leaf.dtype:
            raise SpecError(f"{name}[{key!r}] must have dtype {leaf.dtype}, found {value.dtype}.")
        if tuple(value.shape[infos.batch_dims :]) != tuple(leaf.shape):
            raise SpecError(
                f"{name}[{key!r}] must have shape {tuple(leaf.shape)} in each row, found "
                f"{tuple(value.shape[infos.batch_dims :])}."
            )
