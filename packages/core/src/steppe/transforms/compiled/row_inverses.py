"""RowInverses: what the transforms of a chain make of actions on their way to a row writer."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import torch

from steppe.envs import ActionCodec
from steppe.transforms.base import Transform
from steppe.transforms.compiled.row_plan import RowPlan

__all__ = ["RowInverses"]

#: Given actions ``[k, *shape]``, of rows or of steps, returns what the environment before the transform takes.
_Inverse = Callable[[torch.Tensor], torch.Tensor]


class RowInverses:
    """The inverses of a chain, the last transform first. It is false where there are none.

    Args:
        plan: the chain, of which the inverses serve all rows.
        actions: of the writer before the chain. What an inverse makes is held against its rules.
        of_steps: whether several actions are steps of one environment, instead of rows.
    """

    def __init__(self, plan: RowPlan, actions: ActionCodec, *, of_steps: bool) -> None:
        self.actions = actions
        chain = zip(reversed(plan.parts), reversed(plan.hooks), reversed(plan.action_pairs), strict=True)
        self._chain: list[tuple[Transform, _Inverse, list[tuple[Any, Any]]]] = [
            (part, _inverse(part, hook.inverse_of_steps if of_steps else None), pairs)
            for part, hook, pairs in chain
            if pairs
        ]
        specs = zip(reversed(plan.before), reversed(plan.action_pairs), strict=True)
        #: Of each of these the actions that it makes.
        self._made = [[before.action[key] for _, key in pairs] for before, pairs in specs if pairs]

    def __bool__(self) -> bool:
        return bool(self._chain)

    @torch.no_grad()
    def of_rows(self, actions: dict[Any, np.ndarray[Any, Any]]) -> dict[Any, np.ndarray[Any, Any]]:
        """Invert actions ``{key: [k, *shape]}``, of rows or of steps."""
        actions = dict(actions)
        for part, inverse, pairs in self._chain:
            for out_key, key in pairs:
                given = torch.from_numpy(actions.pop(out_key))
                actions[key] = inverse(given if part.keeps_nothing else given.clone()).numpy()
        rules = self.actions
        fitted = rules.fit({key: torch.from_numpy(actions[key]) for key in rules.keys})
        return {key: value.numpy() for key, value in fitted.items()}

    def decoder_of_one(self, decode: Callable[[torch.Tensor], Any]) -> Callable[[torch.Tensor], Any] | None:
        """A function that inverts the only action ``[*shape]`` of one row, and decodes it; None where there are more.

        Args:
            decode: given what the inverses make, holds it against the rule of the writer before the chain.
        """
        if not self._is_of_one:
            return None
        parts = [part for part, _, _ in self._chain]

        def decode_one(action: torch.Tensor) -> Any:
            if action.requires_grad:
                action = action.detach()
            for part in parts:
                action = part._inv_apply_transform(action)
            return decode(action)

        return decode_one

    def decoder_of_array(self) -> Callable[[np.ndarray[Any, Any]], Any] | None:
        """The same of one action as an array, for a writer without inverses before the chain.

        None where no transform has a kernel, and where there are more actions than one. Those that have none are given
        tensors.
        """
        of_array, of_tensor = self.actions.decoder_of_array(), self.actions.decoder_of_one()
        if not self._is_of_one or of_array is None or of_tensor is None:
            return None
        chain = zip(self._chain, self._made, strict=True)
        kernels = [(part, part.kernel_of_inverse(leaves[0])) for (part, _, _), leaves in chain]
        if all(kernel is None for _, kernel in kernels):
            return None
        functions: list[Callable[[Any], Any]] = []
        as_tensor = False
        for part, kernel in kernels:
            if as_tensor != (kernel is None):
                functions.append(torch.from_numpy if kernel is None else _array_of)
            as_tensor = kernel is None
            functions.append(part._inv_apply_transform if kernel is None else kernel)
        return _in_turn([*functions, of_tensor if as_tensor else of_array])

    @property
    def _is_of_one(self) -> bool:
        """Whether a single action goes through the whole chain, from transform to transform."""
        links = [pairs[0] for _, _, pairs in self._chain if len(pairs) == 1]
        joined = all(link[1] == following[0] for link, following in pairwise(links))
        return len(links) == len(self._chain) and joined and self.actions.keys == [links[-1][1]]


def _in_turn(functions: list[Any]) -> Callable[[Any], Any]:
    """One function that calls each with what the last one has returned."""
    if len(functions) == 2:
        first, second = functions
        return lambda value: second(first(value))

    def called(value: Any) -> Any:
        for function in functions:
            value = function(value)
        return value

    return called


def _array_of(action: torch.Tensor) -> np.ndarray[Any, Any]:
    found: np.ndarray[Any, Any] = action.detach().numpy()
    return found


def _inverse(part: Transform, of_steps: _Inverse | None) -> _Inverse:
    if part.key_of_rows() is not None:
        return lambda actions: part._inv_apply_transform(actions)
    if of_steps is not None:
        return of_steps
    return lambda actions: torch.stack([part._inv_apply_transform(action) for action in actions.unbind(0)])
