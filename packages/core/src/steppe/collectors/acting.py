"""What acts in a collector: the policy with the weights that it has taken over, or random actions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from tensordict import TensorDictBase

from steppe.collectors import arguments
from steppe.collectors.agents import AgentFacts
from steppe.collectors.dry_step import check_policy, check_written, empty_root
from steppe.collectors.planning import planned
from steppe.collectors.weights import Weights
from steppe.envs import EnvBase, ExplorationType, RandomActions, as_policy, set_exploration_type

__all__ = ["Acting"]


class Acting:
    """The policy of a collector in this process, and random actions in its place.

    Args:
        env: in which it acts.
        policy: what the caller gave; None for random actions.
        device: where the policy acts; None where its weights are.
        trusted: it takes and returns a TensorDict.

    Attributes:
        weights: of the policy.
        facts: what the policy declares.
        version: how often the policy was updated.
        in_requests: called with rows; None without a policy.
    """

    def __init__(self, env: EnvBase, policy: Any, *, device: torch.device | None, trusted: bool) -> None:
        self.env, self._device = env, device
        self.weights = Weights(policy, device)
        self.facts = AgentFacts(self.weights.policy)
        self.version = 0
        self.in_requests: Any = None if policy is None else self._fitted(trusted)
        self._random: RandomActions | None = None

    def _fitted(self, trusted: bool) -> Callable[[TensorDictBase], TensorDictBase]:
        policy = self.weights.policy
        act = policy if trusted else as_policy(policy, self.env)
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

    def try_out(self, name: str, exploration: ExplorationType, *, iterates: bool) -> None:
        """Call the policy once, so that one that does not fit is heard of before anything is collected.

        Args:
            name: of the collector, for errors.
            exploration: in force while it acts.
            iterates: whether batches are collected, or requests alone.
        """
        if self.in_requests is None or self.env.has_dynamic_specs:
            return
        plain = not self.facts.declares and (iterates or self.env.batch_dims > 1)
        root = empty_root(self.env, None if plain else self.facts)
        # What a request says, and an agent's state, are nobody else's; observations may be written over in batches.
        own = ("agent_info", "env_info", "agent_state")
        keys = [key for key in root.keys(True, True) if not iterates or (isinstance(key, tuple) and key[0] in own)]
        before = {key: root.get(key) for key in keys}
        with set_exploration_type(exploration):
            found = check_policy(name, self.policy, self.in_requests, root)
        if found is not root:
            root.update(found)
        check_written(self.policy, before, root)
        self.facts.next_state(root)

    def compile(self, compile_policy: Any, cudagraph_policy: Any) -> None:
        """Apply ``torch.compile``, or CUDA graphs, to what acts."""
        if self.in_requests is not None:
            device = self.weights.device
            self.in_requests = arguments.compiled(self.in_requests, compile_policy, cudagraph_policy, device)

    def in_batch(self, root: TensorDictBase, random: bool) -> Callable[[TensorDictBase], TensorDictBase]:
        """What acts in the next batch.

        Args:
            root: where the batch begins.
            random: take random actions, with zeros for what else the policy writes.
        """
        if self.in_requests is None:
            return self.random
        return self._padded(root) if random else self._on_batch(planned(self.in_requests))

    def once(self, root: TensorDictBase) -> TensorDictBase:
        """What the policy writes for data ``[*B]``, without a change of torch's random numbers."""
        with torch.random.fork_rng(devices=[]):
            return self._on_batch(self.in_requests)(root)

    def _on_batch(self, act: Any) -> Callable[[TensorDictBase], TensorDictBase]:
        return _on_rows(act) if self.facts.declares and self.env.batch_dims != 1 else act

    def _padded(self, root: TensorDictBase) -> Callable[[TensorDictBase], TensorDictBase]:
        """Random actions with zeros for what else the policy writes, so that all batches have the same entries."""
        written = self.once(root.clone())
        known = {*root.keys(include_nested=True, leaves_only=True), *self.env.action_keys}
        keys = [
            key
            for key in written.keys(include_nested=True, leaves_only=True)
            if key not in known and key[:2] != ("next", "agent_state")
        ]
        zeros = written.select(*keys).apply(torch.zeros_like) if keys else None
        draw = self.random

        def padded(tensordict: TensorDictBase) -> TensorDictBase:
            if zeros is not None:
                tensordict.update(zeros)
            return draw(tensordict)

        return padded

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
