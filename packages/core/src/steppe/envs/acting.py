"""What an environment knows of its actions: the seed that draws them, random ones, all there are."""

from __future__ import annotations

from typing import Any

import torch
from tensordict import LazyStackedTensorDict, TensorDict, TensorDictBase, lazy_stack

from steppe.envs.rollout.random_actions import write_actions
from steppe.envs.seeding import next_seed
from steppe.specs import CPU

__all__ = ["Acting"]


class Acting:
    """The part of :class:`~steppe.envs.EnvBase` that seeds, and draws actions."""

    # What the rest of EnvBase has.
    batch_size: Any
    batch_locked: Any
    device: Any
    full_action_spec: Any
    action_keys: Any
    supports_set_state: Any
    reset: Any
    step: Any
    _set_seed: Any
    _cached: Any

    def set_seed(self, seed: int | None = None, static_seed: bool = False) -> int | None:
        """Seed the environment and its random actions; holds from the next reset on.

        Args:
            seed: a whole number >= 0, or None to seed from the operating system.
            static_seed: return ``seed`` itself instead of the next one.

        Returns:
            The seed to give to the next environment, so that one number seeds a whole batch.
        """
        following = None if seed is None else next_seed(seed)
        self._seed_actions(seed)
        self._set_seed(seed)
        return seed if static_seed else following

    def _seed_actions(self, seed: int | None) -> None:
        if seed is None:
            self.__dict__["_generator"] = None
        else:
            self.__dict__["_generator"] = torch.Generator().manual_seed(int(seed))

    def action_generator(self) -> torch.Generator:
        """The generator of random actions: the one ``set_seed`` seeded, or a new one drawn from torch's global one."""
        generator: torch.Generator | None = self.__dict__["_generator"]
        if generator is None:
            generator = torch.Generator().manual_seed(int(torch.randint(2**62, (), device=CPU)))
        return generator

    def rand_action(self, tensordict: TensorDictBase | None = None) -> TensorDictBase:
        """Write random actions into ``tensordict`` and return it.

        Args:
            tensordict: data to write into, of the environment's batch size; by default a new one. An environment that
                is not batch-locked draws for whatever batch size it has.

        Returns:
            ``tensordict`` with an entry of the spec's shape and dtype at each of ``action_keys``.
        """
        lead: tuple[int, ...] = ()
        if tensordict is None:
            tensordict = TensorDict({}, batch_size=self.batch_size, device=self.device)
        elif not self.batch_locked and not self.batch_size:
            lead = tuple(tensordict.batch_size)
        sample = self.full_action_spec.rand(lead, generator=self.__dict__["_generator"])
        if isinstance(sample, LazyStackedTensorDict) and not self._cached("alike_actions", self._has_alike_actions):
            if not isinstance(tensordict, LazyStackedTensorDict):
                tensordict = lazy_stack(list(tensordict.unbind(sample.stack_dim)), sample.stack_dim)
            return tensordict.update(sample)
        write_actions(tensordict, sample, self.full_action_spec)
        return tensordict

    def _has_alike_actions(self) -> bool:
        """Whether the actions of stacked rows are one tensor for each key."""
        spec = self.full_action_spec
        keys = set(spec.keys(include_nested=True, leaves_only=True))
        rows = spec.unbind(0)
        return all(set(row.keys(include_nested=True, leaves_only=True)) == keys for row in rows) and all(
            len({(row[key].shape, row[key].dtype) for row in rows}) == 1 for key in keys
        )

    def rand_step(self, tensordict: TensorDictBase | None = None) -> TensorDictBase:
        """``rand_action`` followed by ``step``; without ``tensordict`` it acts on nothing but the action."""
        return self.step(self.rand_action(tensordict))

    def all_actions(self, tensordict: TensorDictBase | None = None) -> TensorDictBase:
        """Every action there is, of batch size ``[cardinality, *B]``, all rows alike; masks of the spec count.

        Args:
            tensordict: data to reset the environment from first, for masks that depend on the state; to its state
                where the environment supports that.

        Raises:
            NotSupported: the actions are not countable.
        """
        if tensordict is not None:
            self.reset(tensordict, set_state=True if self.supports_set_state else None)
        return self.full_action_spec.enumerate(use_mask=True)

    def cardinality(self, tensordict: TensorDictBase | None = None) -> int | float:
        """How many actions there are, those of all keys combined, for one row; infinite for continuous ones.

        Override it where that depends on the state in ``tensordict``, which is not read here.
        """
        total: int | float = 1
        for leaf in self.full_action_spec.values(include_nested=True, leaves_only=True):
            total *= leaf.cardinality()
        return total
