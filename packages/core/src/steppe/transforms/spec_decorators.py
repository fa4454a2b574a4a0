"""Decorators of methods that change specs: written for the spec of one entry, called with a Composite too."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from steppe.specs import INPUT_KINDS, Composite, Spec
from steppe.transforms.transform_keys import Key

if TYPE_CHECKING:
    from steppe.transforms.base import Transform

__all__ = ["apply_to_composite", "apply_to_composite_inv"]

_T = TypeVar("_T", bound="Transform")


def apply_to_composite(function: Callable[[_T, Spec], Spec]) -> Callable[[_T, Spec], Spec]:
    """Decorate a ``transform_..._spec`` that takes and returns the spec of a single entry.

    The method is called with a copy of the leaf at each of ``in_keys`` that the Composite has. The result goes to the
    matching key of ``out_keys``. Called with a leaf, it returns a leaf::

        class Doubled(ObservationTransform):
            def _apply_transform(self, value):
                return torch.cat([value, value], -1)

            @apply_to_composite
            def transform_observation_spec(self, spec):
                return Unbounded((*spec.shape[:-1], 2 * spec.shape[-1]), dtype=spec.dtype)
    """

    @functools.wraps(function)
    def on_composite(self: Transform, spec: Spec) -> Spec:
        return _mapped(self, function, spec, self.in_keys, self.out_keys)

    return on_composite


def apply_to_composite_inv(function: Callable[[_T, Spec], Spec]) -> Callable[[_T, Spec], Spec]:
    """Decorate a ``transform_action_spec``, ``transform_state_spec`` or ``transform_input_spec`` in the same way.

    The method is called with the leaf at each of ``in_keys_inv``, the spec of the environment's entry. It returns the
    spec of the caller's entry, which goes to the matching key of ``out_keys_inv``.
    """

    @functools.wraps(function)
    def on_composite(self: Transform, spec: Spec) -> Spec:
        keys, out_keys = self.in_keys_inv, self.out_keys_inv
        packed = [f"full_{kind}_spec" for kind in INPUT_KINDS]
        if not isinstance(spec, Composite) or not set(packed) & set(spec.keys()):
            return _mapped(self, function, spec, keys, out_keys, move=True)
        for name in packed:
            if name in spec.keys():
                spec[name] = _mapped(self, function, spec[name], keys, out_keys, move=True)
        return spec

    return on_composite


def _mapped(
    self: Transform,
    function: Callable[[Any, Spec], Spec],
    spec: Spec,
    keys: list[Key],
    out_keys: list[Key],
    *,
    move: bool = False,
) -> Spec:
    if not isinstance(spec, Composite):
        return function(self, spec.clone())
    for key, out_key in zip(keys, out_keys, strict=True):
        leaf = spec.get(key, None)
        if leaf is None:
            continue
        changed = function(self, leaf.clone())
        if move and out_key != key:
            spec.pop(key)
        spec.set(out_key, changed)
    return spec
