"""What an environment draws from: its seed, and its random actions."""

from __future__ import annotations

from typing import Any

import torch
from tensordict import TensorDictBase

from steppe.envs.env_meta import check_takes_one
from steppe.envs.reset_and_step import ResetAndStep
from steppe.envs.rollout.random_actions import draw_actions
from steppe.envs.row_access import full_width
from steppe.envs.seeding import next_seed
from steppe.errors import NotSupported
from steppe.specs import CPU

__all__ = ["SeedsAndActions"]


class SeedsAndActions(ResetAndStep):
    """Seeds, random actions, and how many actions there are."""

    # -- seeds ----------------------------------------------------------------------------------------------------

    def _set_seed(self, seed: int | None) -> None:
        raise NotSupported(
            f"{type(self).__name__} does not define _set_seed(seed), so it cannot be seeded. Define it, and seed the "
            "generator that the environment draws from; write pass where nothing is random."
        )

    def set_seed(self, seed: int | None = None, static_seed: bool = False) -> int | None:
        """Seed the environment and its random actions; holds from the next reset on.

        Args:
            seed: a whole number >= 0, or None to seed from the operating system.
            static_seed: return ``seed`` itself instead of the next one.

        Raises:
            SpecError: the ``_set_seed`` of the class takes no seed.

        Returns:
            The seed to give to the next environment, so that one number seeds a whole batch.
        """
        check_takes_one(type(self), "_set_seed")
        following = None if seed is None else next_seed(seed)
        self.seed_actions(seed)
        self._set_seed(seed)
        return seed if static_seed else following

    def seed_actions(self, seed: int | None) -> None:
        """Seed random actions alone; None leaves them to torch's global generator."""
        self.base_state.generator = None if seed is None else torch.Generator().manual_seed(int(seed))

    # -- actions --------------------------------------------------------------------------------------------------

    def action_generator(self) -> torch.Generator:
        """The generator of random actions: the one ``set_seed`` seeded, or a new one drawn from torch's global one."""
        generator = self.base_state.generator
        if generator is None:
            generator = torch.Generator().manual_seed(int(torch.randint(2**62, (), device=CPU)))
        return generator

    @property
    def chooses_random_actions(self) -> bool:
        """Whether its own ``rand_action`` knows better than ``action_spec`` what is allowed: masks in data, say."""
        return type(self).rand_action is not SeedsAndActions.rand_action or "rand_action" in vars(self)

    def rand_action(self, tensordict: TensorDictBase | None = None) -> TensorDictBase:
        """Write random actions into ``tensordict`` and return it.

        A class whose actions are masked by data writes a method of its own; batches and transformed environments ask
        it too.

        Args:
            tensordict: data to write into, of the environment's batch size; by default a new one. An environment that
                is not batch-locked draws for whatever batch size it has.

        Returns:
            ``tensordict`` with an entry of the spec's shape and dtype at each of ``action_keys``.
        """
        return draw_actions(self, tensordict, self.base_state.generator)

    def rand_action_at(self, tensordict: TensorDictBase, rows: Any) -> TensorDictBase:
        """Write random actions of some rows of the batch into ``tensordict`` and return it.

        Args:
            tensordict: ``[k]`` data of those rows.
            rows: which, as for :meth:`step_at`.
        """
        index = self.checked_rows(rows, "rand_action_at")
        if not self.batch_locked and not self.batch_size:
            return self.rand_action(tensordict)
        # Actions of all rows are drawn, whichever are asked for: the numbers that follow do not depend on it.
        drawn = self.rand_action(full_width(self, tensordict, index)).select(*self.action_keys)
        return tensordict.update(drawn[index])

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
        actions: TensorDictBase = self.full_action_spec.enumerate(use_mask=True)
        return actions

    def cardinality(self, tensordict: TensorDictBase | None = None) -> int | float:
        """How many actions there are, those of all keys combined, for one row; infinite for continuous ones.

        Override it where that depends on the state in ``tensordict``, which is not read here.
        """
        count: int | float = self.full_action_spec.cardinality()
        return count
