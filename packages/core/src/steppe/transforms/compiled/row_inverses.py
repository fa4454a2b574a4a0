"""RowInverses: the inverses of a chain, applied to actions on their way to a row writer."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import torch

from steppe.envs import ActionCodec, RowWriter
from steppe.specs import Spec
from steppe.transforms.base import Transform
from steppe.transforms.compiled.row_plan import RowPlan
from steppe.transforms.compiled.transform_hooks import Array
from steppe.transforms.transform_keys import Key

__all__ = ["RowInverses"]

#: Turns actions ``[k, *shape]``, of rows or of steps, into actions of the environment before the transform.
_Inverse = Callable[[torch.Tensor], torch.Tensor]


class RowInverses:
    """The inverses of a chain, the last transform first; false if there are none.

    Args:
        plan: the chain; its inverses serve all rows.
        actions: codec of the writer before the chain, which checks the results.
    """

    def __init__(self, plan: RowPlan, actions: ActionCodec) -> None:
        self.actions = actions
        chain = list(zip(plan.parts, plan.hooks, plan.action_pairs, plan.before, strict=True))
        #: For each transform its inverse, the keys of the actions, and the spec of its first result.
        self._chain: list[tuple[Transform, _Inverse, list[tuple[Key, Key]], Spec]] = [
            (part, _inverse(part), pairs, before.action[pairs[0][1]])
            for part, hook, pairs, before in reversed(chain)
            if pairs
        ]

    def __bool__(self) -> bool:
        return bool(self._chain)

    @torch.no_grad()
    def of_rows(self, actions: dict[Key, Array]) -> dict[Key, Array]:
        """Invert actions ``{key: [k, *shape]}``, of rows or of steps."""
        actions = dict(actions)
        for part, inverse, pairs, _ in self._chain:
            for out_key, key in pairs:
                action = torch.from_numpy(actions.pop(out_key))
                actions[key] = inverse(action if part.keeps_nothing else action.clone()).numpy()
        rules = self.actions
        fitted = rules.fit({key: torch.from_numpy(actions[key]) for key in rules.keys})
        return {key: value.numpy() for key, value in fitted.items()}

    def decoder_of_one(self, base: RowWriter) -> Callable[[Array], Any] | None:
        """Return a function that inverts and decodes the only action of one row, an array; None if there are several.

        Transforms without an ``inverse_kernel`` receive tensors.

        Args:
            base: the writer before the chain.
        """
        fast = base.fast_decoder(torch.Size(()))
        if fast is None or not self._is_of_one:
            return None
        (key,) = self.actions.keys
        fit = self.actions.rules[key].fit

        def decode(action: torch.Tensor) -> Any:
            decoded = fast(action)
            if decoded is None:  # it is converted, or the error says why it cannot be
                decoded = base.decode({key: fit(action).detach()[None].numpy()})
            return decoded[0]

        functions: list[Callable[[Any], Any]] = []
        as_tensor = False
        for part, _, _, leaf in self._chain:
            kernel = part.kernel_of_inverse(leaf)
            if as_tensor != (kernel is None):
                functions.append(torch.from_numpy if kernel is None else _array_of)
            as_tensor = kernel is None
            functions.append(part._inv_apply_transform if kernel is None else kernel)
        of_array = None if as_tensor or base.inverts else self.actions.decoder_of_array()
        if of_array is not None:
            return _in_turn([*functions, of_array])
        return _in_turn([*functions, decode] if as_tensor else [*functions, torch.from_numpy, decode])

    @property
    def _is_of_one(self) -> bool:
        """Whether each inverse turns one action into the one action of the next."""
        links = [pairs[0] for _, _, pairs, _ in self._chain if len(pairs) == 1]
        joined = all(link[1] == following[0] for link, following in pairwise(links))
        return len(links) == len(self._chain) and joined and self.actions.keys == [links[-1][1]]


def _in_turn(functions: list[Callable[[Any], Any]]) -> Callable[[Any], Any]:
    """Return one function that calls each of these with the result of the one before."""
    if len(functions) == 2:
        first, second = functions
        return lambda value: second(first(value))

    def called(value: Any) -> Any:
        for function in functions:
            value = function(value)
        return value

    return called


def _array_of(action: torch.Tensor) -> Array:
    array: Array = action.detach().numpy()
    return array


def _inverse(part: Transform) -> _Inverse:
    """Return the inverse of a transform for several actions."""
    if part.key_of_rows() is not None:
        return lambda actions: part._inv_apply_transform(actions)
    return lambda actions: torch.stack([part._inv_apply_transform(action) for action in actions.unbind(0)])
