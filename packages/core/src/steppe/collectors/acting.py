"""What acts in a collector: the policy with the weights that it has taken over, or random actions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from tensordict import TensorDictBase

from steppe.collectors import arguments
from steppe.collectors.agent_facts import AgentFacts
from steppe.collectors.first_call import AGENT_OWNED, first_call
from steppe.collectors.planning import planned
from steppe.collectors.weights import Weights
from steppe.envs import EnvBase, RandomActions, as_policy

__all__ = ["Acting"]


class Acting:
    """The policy of a collector in this process, and random actions in its place.

    Args:
        name: of the collector, for errors.
        env: in which it acts.
        policy: what the caller gave; None for random actions.
        device: where the policy acts; None where its weights are.
        trusted: it takes and returns a TensorDict.

    Attributes:
        trusted: as given.
        weights: of the policy.
        facts: what the policy declares.
        version: how often the policy was updated.
        in_requests: called with rows; None without a policy.
    """

    def __init__(self, name: str, env: EnvBase, policy: Any, *, device: torch.device | None, trusted: bool) -> None:
        self._name, self.env, self._device, self.trusted = name, env, device, trusted
        self.weights = Weights(policy, device)
        self.facts = AgentFacts(self.weights.policy)
        self.version = 0
        self.in_requests: Any = None if policy is None else self._fitted()
        self._random: RandomActions | None = None

    def _fitted(self) -> Callable[[TensorDictBase], TensorDictBase]:
        policy = self.weights.policy
        act = policy if self.trusted else as_policy(policy, self.env)
        there, here = self.weights.device or self._device, self.env.device
        # A policy that was given a device reads it from its TensorDict, also where the environment's have none.
        plain = here or (torch.device("cpu") if self._device is None else None)
        if there is not None and there != plain:
            act = arguments.within_devices(act, there, here or torch.device("cpu"))
        return act

    @property
    def policy(self) -> Any:
        """What acts; None for random actions."""
        return self.weights.policy

    @property
    def random(self) -> RandomActions:
        """The random actions that come next."""
        if self._random is None:
            self._random = RandomActions(self.env)
        return self._random

    def draw_anew(self) -> None:
        """Begin with other random actions, which the seed of the environment decides."""
        self._random = None

    def compile(self, compile_policy: Any, cudagraph_policy: Any) -> None:
        """Apply ``torch.compile``, or CUDA graphs, to what acts."""
        if self.in_requests is not None:
            device = self.weights.device
            self.in_requests = arguments.compiled(self.in_requests, compile_policy, cudagraph_policy, device)

    def in_batch(self, random: bool) -> Callable[[TensorDictBase], TensorDictBase]:
        """What acts in the next batch.

        Args:
            random: take random actions; the policy is not called.
        """
        if random or self.in_requests is None:
            return self.random
        act = planned(self.in_requests)
        return _on_rows(act) if self.facts.declares and self.env.batch_dims != 1 else act

    def at_first(self, act: Callable[[TensorDictBase], TensorDictBase]) -> Callable[[TensorDictBase], TensorDictBase]:
        """What acts in the first step of the first batch: it raises PolicyError where the policy does not fit.

        Args:
            act: from :meth:`in_batch`, for the policy.
        """
        # What a request says, and an agent's state, are nobody else's; observations may be written over in batches.
        return lambda root: first_call(self._name, self.policy, act, root, protected=AGENT_OWNED, trusted=self.trusted)

    def seed(self, number: int) -> None:
        """Seed what the policy draws: torch's random numbers, and its own through ``policy.seed(number)``."""
        torch.manual_seed(number)
        own = getattr(self.policy, "seed", None)
        if callable(own):
            own(number)


def _on_rows(act: Callable[[TensorDictBase], TensorDictBase]) -> Callable[[TensorDictBase], TensorDictBase]:
    """Call an agent with rows ``[k]``, as in requests, for data of another number of dimensions."""

    def acting(tensordict: TensorDictBase) -> TensorDictBase:
        acted = act(tensordict.reshape(-1))
        return acted.reshape(tensordict.batch_size) if isinstance(acted, TensorDictBase) else acted

    return acting
