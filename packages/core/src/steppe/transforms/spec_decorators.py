"""Specs changed leaf by leaf."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from steppe.specs import Composite, Spec

__all__ = ["apply_to_composite", "apply_to_composite_inv"]


def apply_to_composite(function: Callable[[Any, Spec], Spec]) -> Callable[[Any, Composite], Composite]:
    """Decorate a ``transform_..._spec`` that is written for one leaf.

    It is called with a copy of the leaf at each of ``in_keys`` that the Composite has, and what it returns is put at
    the key of ``out_keys`` at the same place::

        class Doubled(ObservationTransform):
            def _apply_transform(self, value):
                return torch.cat([value, value], -1)

            @apply_to_composite
            def transform_observation_spec(self, spec):
                return Unbounded((*spec.shape[:-1], 2 * spec.shape[-1]), dtype=spec.dtype)
    """

    @functools.wraps(function)
    def on_composite(self: Any, spec: Composite) -> Composite:
        return _mapped(self, function, spec, self.in_keys, self.out_keys)

    return on_composite


def apply_to_composite_inv(function: Callable[[Any, Spec], Spec]) -> Callable[[Any, Composite], Composite]:
    """The same for ``transform_action_spec`` and ``transform_state_spec``, with ``in_keys_inv`` and ``out_keys_inv``.

    Or for both at once, ``transform_input_spec``. The leaf is what the environment takes, the result what the caller is
    to give.
    """

    @functools.wraps(function)
    def on_composite(self: Any, spec: Composite) -> Composite:
        parts = [name for name in ("full_action_spec", "full_state_spec") if name in spec.keys()]
        for name in parts:
            spec[name] = _mapped(self, function, spec[name], self.in_keys_inv, self.out_keys_inv, move=True)
        return spec if parts else _mapped(self, function, spec, self.in_keys_inv, self.out_keys_inv, move=True)

    return on_composite


def _mapped(
    self: Any,
    function: Callable[[Any, Spec], Spec],
    spec: Composite,
    keys: list[Any],
    out_keys: list[Any],
    *,
    move: bool = False,
) -> Composite:
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
