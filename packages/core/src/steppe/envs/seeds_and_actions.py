"""SeedsAndActions: the seed of an environment, its random actions, and their number."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from tensordict import NestedKey, TensorDictBase

from steppe.envs.reset_and_step import ResetAndStep
from steppe.envs.rollout.random_actions import draw_actions
from steppe.envs.row_access import full_width
from steppe.envs.seeding import next_seed
from steppe.errors import NotSupported, SpecError
from steppe.specs import CPU, is_key

__all__ = ["SeedsAndActions"]


class SeedsAndActions(ResetAndStep):
    """The part of EnvBase that seeds the environment, and draws and counts actions."""

    # -- seeds ----------------------------------------------------------------------------------------------------

    def _set_seed(self, seed: int | None) -> None:
        raise NotSupported(
            f"{type(self).__name__} does not define _set_seed(seed), so it cannot be seeded. Define it, and seed the "
            "generator of the environment. If nothing is random, the body is `pass`."
        )

    def set_seed(self, seed: int | None = None, static_seed: bool = False) -> int | None:
        """Seed the environment and its random actions, from the next reset on.

        Args:
            seed: a whole number >= 0, or None to seed from the operating system.
            static_seed: return ``seed`` itself instead of the next one.

        Returns:
            The seed for the next environment, so that one number seeds a whole batch.
        """
        following = None if seed is None else next_seed(seed)
        self.seed_actions(seed)
        self._set_seed(seed)
        return seed if static_seed else following

    def seed_actions(self, seed: int | None) -> None:
        """Seed only the random actions. None: use torch's global generator."""
        self.base_state.generator = None if seed is None else torch.Generator().manual_seed(int(seed))

    # -- actions --------------------------------------------------------------------------------------------------

    def action_generator(self) -> torch.Generator:
        """Return the generator that ``set_seed`` seeded, or a new one seeded by torch's global generator."""
        generator = self.base_state.generator
        if generator is None:
            generator = torch.Generator().manual_seed(int(torch.randint(2**62, (), device=CPU)))
        return generator

    @property
    def action_masks(self) -> Mapping[NestedKey, NestedKey]:
        """Which entry of the root is the mask of which action, ``{action key: mask key}``; empty by default.

        An environment that allows other actions in each state assigns it in ``__init__``::

            self.action_spec = Categorical(5)
            self.observation_spec = Composite(action_mask=Binary(5, dtype=torch.bool))
            self.action_masks = {"action": "action_mask"}

        Random actions are then drawn among those that the mask in the data allows, in ``rand_action``, ``rand_step``,
        rollouts, batches and collectors. A mask is an observation or a state, bool, with True for each allowed
        category: ``[*B, n]`` for a Categorical or OneHot action, ``[*B, sum(nvec)]`` for several choices; for these
        also ``[*B, choices, n]``, or ``[*B, n1, n2, ...]`` with a flag for each combination. The mask of an agent that
        does not act allows all its actions. Where a mask allows nothing, any action is drawn. A batch has the masks of
        its environments. A TransformedEnv has the masks of its base whose actions no transform changes, and the masks
        that its transforms declare, as ``ActionMask`` does.
        """
        return self.base_state.action_masks

    @action_masks.setter
    def action_masks(self, masks: Mapping[NestedKey, NestedKey]) -> None:
        if not isinstance(masks, Mapping) or not all(is_key(key) for pair in masks.items() for key in pair):
            raise SpecError(f"action_masks is a mapping such as {{'action': 'action_mask'}}, found {masks!r}.")
        self.base_state.action_masks = dict(masks)
        self.specs_changed()

    @property
    def chooses_random_actions(self) -> bool:
        """Whether random actions come from an overridden ``rand_action``, of this class or an environment inside."""
        return self._overrides_rand_action or self._draws_inside

    @property
    def _overrides_rand_action(self) -> bool:
        return type(self).rand_action is not SeedsAndActions.rand_action or "rand_action" in vars(self)

    @property
    def _draws_inside(self) -> bool:
        """Whether an environment inside this one overrides ``rand_action``, which :meth:`_drawn_inside` calls."""
        return False

    def _drawn_inside(self, tensordict: TensorDictBase | None, rows: torch.Tensor | None) -> TensorDictBase:
        """Write the random actions of environments inside this one into data; see :func:`draw_actions`."""
        raise NotImplementedError

    def rand_action(self, tensordict: TensorDictBase | None = None) -> TensorDictBase:
        """Write random actions into ``tensordict`` and return it.

        If actions are masked by data, declare the masks with :attr:`action_masks`. A class that overrides this method
        is called by batches and transformed environments too, one environment after the other.

        Args:
            tensordict: data to write into, of the environment's batch size; by default a new one. An environment that
                is not batch-locked draws for the batch size of the data. Masks are read from it.

        Raises:
            SpecError: a mask of :attr:`action_masks` is missing, or has another shape or dtype.

        Returns:
            ``tensordict`` with an entry of the spec's shape and dtype at each of ``action_keys``.
        """
        return self._drawn_inside(tensordict, None) if self._draws_inside else draw_actions(self, tensordict)

    def rand_action_at(self, tensordict: TensorDictBase, rows: object) -> TensorDictBase:
        """Write random actions of some rows of the batch into ``tensordict`` and return it.

        Args:
            tensordict: the data of these rows, ``[k]``.
            rows: the rows, as for :meth:`step_at`.
        """
        index = self.checked_rows(rows, "rand_action_at")
        if not self.batch_locked and not self.batch_size:
            return self.rand_action(tensordict)
        if self._overrides_rand_action:
            drawn = self.rand_action(full_width(self, tensordict, index)).select(*self.action_keys)
            return tensordict.update(drawn[index])
        if self._draws_inside and index.numel():
            return self._drawn_inside(tensordict, index)
        return draw_actions(self, tensordict, index)

    def rand_step(self, tensordict: TensorDictBase | None = None) -> TensorDictBase:
        """Call ``rand_action`` and then ``step``; without ``tensordict``, the step receives only the action."""
        return self.step(self.rand_action(tensordict))

    def all_actions(self, tensordict: TensorDictBase | None = None) -> TensorDictBase:
        """Return all possible actions, ``[cardinality, *B]``, equal in all rows; masks in the action spec apply.

        Args:
            tensordict: data to reset the environment with first, if the masks depend on the state. An environment that
                supports ``set_state`` is reset to the state in the data.

        Raises:
            NotSupported: the actions are not countable.
        """
        if tensordict is not None:
            self.reset(tensordict, set_state=True if self.supports_set_state else None)
        actions: TensorDictBase = self.full_action_spec.enumerate(use_mask=True)
        return actions

    def cardinality(self, tensordict: TensorDictBase | None = None) -> int | float:
        """Return the number of possible actions of one row, over all action keys; infinity for continuous actions.

        Override it if the number depends on the state in ``tensordict``, which this method does not read.
        """
        count: int | float = self.full_action_spec.cardinality()
        return count
