"""Decorators of methods that change a spec: written for a leaf or a Composite, called with either."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import torch

from steppe.specs import INPUT_KINDS, Composite, Spec
from steppe.transforms.transform_keys import Key, as_key, names_of

if TYPE_CHECKING:
    from steppe.transforms.base import Transform

__all__ = ["apply_to_composite", "apply_to_composite_inv", "changed_spec", "takes_leaf"]

_T = TypeVar("_T", bound="Transform")

#: The kind of specs of well-known names.
_NAMES = {
    "reward": "reward",
    "done": "done",
    "terminated": "done",
    "truncated": "done",
    "action": "action",
    "observation": "observation",
    "pixels": "observation",
}


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


def takes_leaf(method: Callable[[_T, Composite], Composite]) -> Callable[[_T, Spec], Spec]:
    """Decorate a ``transform_..._spec`` that is written for a Composite, so that it takes a leaf too.

    A leaf has no key: it stands for each entry of its kind that the transform reads. The decorated method returns the
    leaf behind the transform, or the same leaf if the transform does not change such entries::

        class Marked(Transform):
            @takes_leaf
            def transform_observation_spec(self, spec):
                spec["mark"] = Unbounded((1,))
                return spec
    """
    kind = method.__name__.removeprefix("transform_").removesuffix("_spec")

    @functools.wraps(method)
    def of_either(self: _T, spec: Spec) -> Spec:
        return changed_spec(self, kind, spec, functools.partial(method, self))

    return of_either


def changed_spec(transform: Transform, kind: str, spec: Spec, change: Callable[[Composite], Composite]) -> Spec:
    """Call a function of a Composite with a Composite, or with one around a leaf; see :func:`takes_leaf`."""
    if isinstance(spec, Composite):
        return change(spec)
    env = transform.parent
    if env is not None and spec.shape[: len(env.batch_size)] == env.batch_size:
        around = getattr(env, f"full_{kind}_spec").clone()
    else:
        around = Composite(shape=torch.Size(()), device=spec.device)
    pairs = _pairs(transform, kind)
    for key, _ in pairs:
        around.set(key, spec.clone())
    after = change(around)
    for key in [*(out_key for _, out_key in pairs), *(key for key, _ in pairs)]:
        leaf: Spec | None = after.get(key, None)
        if leaf is not None:
            return leaf
    return spec


def _pairs(transform: Transform, kind: str) -> list[tuple[Key, Key]]:
    """Return pairs of keys that a transform reads and writes, of entries of a kind; at least one pair."""
    inverse = kind in INPUT_KINDS
    keys, out_keys = (
        (transform.in_keys_inv, transform.out_keys_inv) if inverse else (transform.in_keys, transform.out_keys)
    )
    if len(keys) != len(out_keys):
        # Several entries become one, or one becomes several.
        out_keys = [out_keys[0]] * len(keys) if out_keys else keys
    env = transform.parent
    known = [] if env is None else list(getattr(env, f"full_{kind}_spec").keys(include_nested=True, leaves_only=True))
    pairs = list(zip(map(as_key, keys), map(as_key, out_keys), strict=True))
    of_kind = [pair for pair in pairs if pair[0] in known]
    if not of_kind:
        of_kind = [pair for pair in pairs if _NAMES.get(names_of(pair[0])[-1], kind) == kind]
    return of_kind or [(kind, kind)]
