"""RandomActions: random actions, drawn by one rule in every class, so that one seed gives one data set."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from tensordict import LazyStackedTensorDict, TensorDict, TensorDictBase, lazy_stack

from steppe.envs.data_types import Key
from steppe.envs.rollout.action_masks import MaskedActions
from steppe.envs.rollout.policies import with_written
from steppe.envs.row_access import full_width
from steppe.errors import SpecError
from steppe.specs import Composite, StackedComposite, check_no_exclusive_keys, union
from steppe.storage import entries

if TYPE_CHECKING:
    from steppe.envs.base import EnvBase
    from steppe.envs.seeds_and_actions import SeedsAndActions

__all__ = ["CHUNK", "RandomActions", "draw_actions", "draws_in_blocks", "put_actions", "write_actions"]

#: The number of steps whose actions are drawn at once. It is part of the contract: another number would change the
#: actions that a seed gives.
CHUNK = 128


def draws_in_blocks(env: EnvBase) -> bool:
    """Return whether actions may be drawn ahead: no state of the environment changes which actions it accepts."""
    return (
        not env.chooses_random_actions
        and not env.action_masks
        and bool(env.action_keys)
        and all(
            leaf is not None
            and leaf.dtype is not None
            and getattr(leaf, "mask", None) is None
            and not any(size < 0 for size in leaf.shape)
            for leaf in env.full_action_spec.values(include_nested=True, leaves_only=True)
        )
        and not isinstance(env.full_action_spec, StackedComposite)
        and check_no_exclusive_keys(env.full_action_spec)
    )


def draw_actions(
    env: SeedsAndActions, tensordict: TensorDictBase | None, rows: torch.Tensor | None = None
) -> TensorDictBase:
    """Write random actions into data, or into a new TensorDict; see :meth:`EnvBase.rand_action`.

    Args:
        env: the environment. Its generator, or torch's global one, is the source of randomness.
        tensordict: the data to write into, with the masks of ``env.action_masks``.
        rows: the rows of the batch that the data is of. The actions of all rows are drawn in any case, so that the
            numbers that follow do not depend on ``rows``.

    Raises:
        SpecError: a mask is missing, or has another shape or dtype.
    """
    lead = torch.Size()
    if tensordict is not None and not env.batch_locked and not env.batch_size:
        lead = tensordict.batch_size
    if env.action_masks:
        sample = _masked_sample(env, tensordict, rows, lead)
    else:
        sample = env.full_action_spec.rand(lead, generator=env.base_state.generator)
    if rows is not None and tensordict is not None:
        return tensordict.update(sample[rows])
    if tensordict is None:
        tensordict = TensorDict({}, batch_size=env.batch_size, device=env.device)
    return put_actions(env, tensordict, sample)


def _masked_sample(
    env: SeedsAndActions, tensordict: TensorDictBase | None, rows: torch.Tensor | None, lead: torch.Size
) -> TensorDictBase:
    """Draw actions that the masks of the data allow."""
    masks = env.action_masks
    if tensordict is None:
        raise SpecError(
            f"{env!r} draws random actions among those that the masks {[*masks.values()]} allow, and there is no data "
            "that holds them. Pass it: env.rand_action(env.reset())."
        )
    try:
        plan = env.cached("masked_actions", lambda: _plan_of(env))
        if rows is not None:
            # The other rows repeat the masks of these.
            tensordict = tensordict.select(*masks.values(), *env.done_keys, strict=False)
            tensordict = full_width(env, tensordict, rows)
        return plan.draw(tensordict, lead, env.base_state.generator)
    except SpecError as error:
        raise SpecError(f"Random actions of {env!r}: {error}") from None


def _plan_of(env: SeedsAndActions) -> MaskedActions:
    root = union(env.full_observation_spec, env.full_state_spec)
    return MaskedActions(env.full_action_spec, root, env.action_masks, len(env.batch_size))


def put_actions(env: SeedsAndActions, tensordict: TensorDictBase, sample: TensorDictBase) -> TensorDictBase:
    """Write actions into data and return it; if the actions of rows differ in shape, return a lazy stack of rows."""
    if isinstance(sample, LazyStackedTensorDict) and not env.cached(
        "alike_actions", lambda: _has_alike_rows(env.full_action_spec)
    ):
        return with_written(tensordict, sample)
    write_actions(tensordict, sample, env.full_action_spec)
    return tensordict


def _has_alike_rows(spec: Composite) -> bool:
    """Return whether each action of all rows fits in one tensor."""
    keys = set(spec.keys(include_nested=True, leaves_only=True))
    rows = spec.unbind(0)
    return all(set(row.keys(include_nested=True, leaves_only=True)) == keys for row in rows) and all(
        len({(row[key].shape, row[key].dtype) for row in rows}) == 1 for key in keys
    )


def write_actions(tensordict: TensorDictBase, actions: TensorDictBase, spec: Composite) -> None:
    """Write actions into data, in place. Other entries stay, in nested TensorDicts too.

    Args:
        tensordict: the data to write into.
        actions: data of ``spec``.
        spec: the spec of the actions.
    """
    for name, child in spec.items():
        value = actions.get(name, None)
        present = tensordict.get(name, None) if isinstance(child, Composite) else None
        if value is None:
            continue  # step raises the error about a missing action
        if present is None:
            tensordict.set(name, value)
        elif isinstance(child, StackedComposite):
            # The rows may have actions of different names and sizes, which no tensor of the whole stack holds.
            dim = value.ndim - child.ndim + child.dim
            rows = []
            for part, row, action in zip(child.specs, present.unbind(dim), value.unbind(dim), strict=True):
                rows.append(row.copy())
                write_actions(rows[-1], action, part)
            tensordict.set(name, lazy_stack(rows, dim))
        else:
            write_actions(present, value, child)


class RandomActions:
    """Random actions of an environment, as a policy or in blocks for many steps.

    Without masks, the actions of ``CHUNK`` steps are drawn at once, in the order of time. They do not depend on how
    many steps a caller takes at a time, so one seed gives one data set.

    Args:
        env: the environment. The generator that its ``set_seed`` seeded is the source of randomness.

    Attributes:
        in_blocks: whether actions are drawn for many steps at once. Otherwise each step calls ``env.rand_action``.
    """

    def __init__(self, env: EnvBase) -> None:
        self.in_blocks = draws_in_blocks(env)
        self._env = env
        self._keys = list(env.action_keys)
        self._spec = env.full_action_spec
        self._flat = all(isinstance(key, str) for key in self._keys)
        self._generator = env.action_generator() if self.in_blocks else None
        self._block: dict[Key, torch.Tensor] = {}
        self._drawn: TensorDictBase = TensorDict({})
        #: The actions of each step that is left: tensors by number of the key, or TensorDicts if keys are nested.
        self._tensors: list[tuple[torch.Tensor, ...]] = []
        self._groups: list[TensorDictBase] = []
        self._at = self._size = 0

    def take(self, at_most: int) -> dict[Key, torch.Tensor]:
        """Return the actions of the next steps, ``{key: [k, *shape]}`` with ``1 <= k <= at_most``."""
        if self._at == self._size:
            self._draw(())
        start, self._at = self._at, min(self._at + at_most, self._size)
        return {key: value[start : self._at] for key, value in self._block.items()}

    def _draw(self, lead: tuple[int, ...]) -> None:
        assert self._generator is not None
        drawn = self._spec.rand((CHUNK, *lead), generator=self._generator)
        self._block = {key: drawn.get(key) for key in self._keys}
        self._drawn = drawn
        self._tensors, self._groups = [], []
        self._at, self._size = 0, CHUNK

    def __call__(self, tensordict: TensorDictBase) -> TensorDictBase:
        """Write the actions of one step into its data."""
        env = self._env
        if not self.in_blocks:
            return env.rand_action(tensordict)
        if self._at == self._size:
            self._draw(() if env.batch_locked or env.batch_size else tuple(tensordict.batch_size))
        step, self._at = self._at, self._at + 1
        # One unbind for all steps is cheaper than an index for each step.
        if not self._flat:
            if not self._groups:
                self._groups = list(self._drawn.unbind(0))
            write_actions(tensordict, self._groups[step], self._spec)
            return tensordict
        if not self._tensors:
            self._tensors = list(zip(*(self._block[key].unbind(0) for key in self._keys), strict=True))
        row = self._tensors[step]
        if type(tensordict) is TensorDict and not tensordict.is_locked:
            entries(tensordict).update(zip(self._keys, row, strict=True))
        else:
            for key, value in zip(self._keys, row, strict=True):
                tensordict.set(key, value)
        return tensordict
