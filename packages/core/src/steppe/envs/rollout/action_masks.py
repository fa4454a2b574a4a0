"""MaskedActions: random actions that the masks in the data allow."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from tensordict import NestedKey, TensorDict, TensorDictBase, lazy_stack

from steppe.errors import SpecError
from steppe.specs import Composite, MaskedChoice, Spec, Stacked, StackedComposite, as_path

__all__ = ["MaskedActions"]


class MaskedActions:
    """Draw random actions, under masks in the data.

    Args:
        action: the spec of the actions.
        root: the spec of the entries of a root: observations and states.
        masks: ``{action key: mask key}``.
        batch_dims: the number of batch dimensions of the environment in these specs.
        place: which part of a stack this is, for errors.

    Raises:
        SpecError: there is no such action or mask, the action is not discrete, or the shapes do not fit.
    """

    def __init__(
        self, action: Composite, root: Composite, masks: Mapping[NestedKey, NestedKey], batch_dims: int, place: str = ""
    ) -> None:
        self._masks, self._place = dict(masks), place
        self._choices: dict[NestedKey, MaskedChoice] = {}
        self._stacks: dict[tuple[str, ...], _StackedActions] = {}
        for key, mask_key in masks.items():
            prefix = _stack_prefix(action, root, key, mask_key)
            if prefix is None:
                self._choices[key] = _masked_choice(key, _entry(action, key, "action"), _entry(root, mask_key, "mask"))
            elif prefix not in self._stacks:
                self._stacks[prefix] = _StackedActions(action, root, masks, prefix, batch_dims)
        self._rest = action.exclude(*self._choices, *(prefix for prefix in self._stacks if prefix))

    def draw(self, tensordict: TensorDictBase, lead: torch.Size, generator: torch.Generator | None) -> TensorDictBase:
        """Return the actions of one step; where a mask allows nothing, any action is drawn.

        Args:
            tensordict: data ``[*lead, *batch]`` with the masks.
            lead: leading dimensions of the data that the specs do not have.
            generator: the source of randomness; None for torch's global one.

        Raises:
            SpecError: a mask is missing, or has another shape or dtype.
        """
        if () in self._stacks:
            return self._stacks[()].draw(tensordict, lead, generator)
        sample: TensorDictBase = self._rest.rand(lead, generator=generator)
        for key, choice in self._choices.items():
            mask_key = self._masks[key]
            mask = tensordict.get(mask_key, None)
            if not isinstance(mask, torch.Tensor):
                names = sorted(map(str, tensordict.keys(include_nested=True, leaves_only=True)))
                raise SpecError(
                    f"The data{self._place} has no entry {mask_key!r}, the mask of {key!r}. Pass the data that reset, "
                    f"step_mdp or step_and_maybe_reset returned. Found {names}."
                )
            try:
                sample.set(key, choice.draw(mask, lead, generator))
            except SpecError as error:
                raise SpecError(f"The mask {mask_key!r}{self._place} of {key!r} {error}") from None
        for prefix, stack in self._stacks.items():
            sample.set(prefix, stack.draw(tensordict.get(prefix), lead, generator))
        return sample


class _StackedActions:
    """Draw the actions of stacked environments or agents that differ, one after the other.

    Args:
        action, root, masks, batch_dims: see :class:`MaskedActions`.
        prefix: the key of the stack.
    """

    def __init__(
        self,
        action: Composite,
        root: Composite,
        masks: Mapping[NestedKey, NestedKey],
        prefix: tuple[str, ...],
        batch_dims: int,
    ) -> None:
        actions, roots = _level(action, prefix), _level(root, prefix)
        stack = actions if isinstance(actions, StackedComposite) else roots
        assert actions is not None
        assert roots is not None
        assert isinstance(stack, StackedComposite)
        self._dim, self._is_lazy = stack.dim, stack is actions
        stacks_rows = self._dim < batch_dims
        inside: dict[NestedKey, NestedKey] = {}
        for key, mask_key in masks.items():
            path, mask_path = as_path(key), as_path(mask_key)
            if path[: len(prefix)] == prefix == mask_path[: len(prefix)]:
                inside[_shortest(path[len(prefix) :])] = _shortest(mask_path[len(prefix) :])
            elif path[: len(prefix)] == prefix:
                raise SpecError(
                    f"The members of {prefix!r} differ, so the mask of their action {key!r} must be in {prefix!r} "
                    f"too, found {mask_key!r}."
                )
        self._plans = []
        parts = zip(actions.unbind(self._dim), roots.unbind(self._dim), strict=True)
        for i, (part, part_root) in enumerate(parts):
            # A member whose specs have no mask may take any action.
            specs_of_rows = {
                key: mask_key
                for key, mask_key in inside.items()
                if part.get(key, None) is not None and part_root.get(mask_key, None) is not None
            }
            place = f" of environment {i}" if stacks_rows else f" of member {i} of {_shortest(prefix)!r}"
            self._plans.append(MaskedActions(part, part_root, specs_of_rows, batch_dims - stacks_rows, place))

    def draw(self, tensordict: TensorDictBase, lead: torch.Size, generator: torch.Generator | None) -> TensorDictBase:
        """Return the actions of all members."""
        dim = self._dim + len(lead)
        parts = zip(self._plans, tensordict.unbind(dim), strict=True)
        samples = [plan.draw(part, lead, generator) for plan, part in parts]
        return lazy_stack(samples, dim) if self._is_lazy else TensorDict.stack(samples, dim)


def _masked_choice(key: NestedKey, leaf: Spec, mask: Spec) -> MaskedChoice:
    """Return a function that draws one action under its mask.

    Raises:
        SpecError: the action is not discrete, or the shape of the mask does not fit.
    """
    try:
        choice = leaf.masked_choice(mask.shape)
    except SpecError as error:
        raise SpecError(f"The mask of the action {key!r} {error}") from None
    if choice is None:
        raise SpecError(f"An action with a mask must be discrete, and {key!r} is {leaf}.")
    return choice


def _shortest(path: tuple[str, ...]) -> NestedKey:
    return path[0] if len(path) == 1 else path


def _level(spec: Composite, prefix: tuple[str, ...]) -> Composite | None:
    level: Spec | None = spec.get(prefix, None) if prefix else spec
    return level if isinstance(level, Composite) else None


def _entry(spec: Composite, key: NestedKey, what: str) -> Spec:
    leaf: Spec | None = spec.get(key, None)
    if leaf is None or isinstance(leaf, Composite):
        keys = list(spec.keys(include_nested=True, leaves_only=True))
        raise SpecError(f"action_masks names the {what} {key!r}, which is not in the specs. Found {keys}.")
    return leaf


def _stack_prefix(action: Composite, root: Composite, key: NestedKey, mask_key: NestedKey) -> tuple[str, ...] | None:
    """Return the key of the first stack above an action whose members must be drawn one by one; None if none must."""
    path = as_path(key)
    prefixes = [path[:n] for n in range(len(path))]
    stacks = [prefix for prefix in prefixes if isinstance(_level(action, prefix), StackedComposite)]
    mask = root.get(mask_key, None)
    if not stacks and (mask is None or isinstance(mask, Stacked)):
        # The actions are alike, and their masks are not.
        stacks = [prefix for prefix in prefixes if isinstance(_level(root, prefix), StackedComposite)]
    return stacks[0] if stacks else None
