"""Methods of a transform that change one spec: written for one leaf, or for a Composite, and called with either."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

import torch

from steppe.errors import SpecError
from steppe.specs import INPUT_KINDS, Composite, Spec
from steppe.transforms.transform_keys import as_key, names_of

__all__ = ["apply_to_composite", "apply_to_composite_inv", "map_leaves", "takes_leaf"]

_T = TypeVar("_T")

#: Names that say which kind an entry is of.
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
    def on_composite(self: Any, spec: Spec) -> Spec:
        return _mapped(self, function, spec, self.in_keys, self.out_keys)

    return on_composite


def apply_to_composite_inv(function: Callable[[_T, Spec], Spec]) -> Callable[[_T, Spec], Spec]:
    """Decorate a ``transform_action_spec``, ``transform_state_spec`` or ``transform_input_spec`` in the same way.

    The method is called with the leaf at each of ``in_keys_inv``, the spec of the environment's entry. It returns the
    spec of the caller's entry, which goes to the matching key of ``out_keys_inv``.
    """

    @functools.wraps(function)
    def on_composite(self: Any, spec: Spec) -> Spec:
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
    self: Any,
    function: Callable[[Any, Spec], Spec],
    spec: Spec,
    keys: list[Any],
    out_keys: list[Any],
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

    A leaf has no key: it stands for each entry of its kind that the transform reads, in the environment of the
    transform where it has one. What comes back is the leaf behind the transform, or the same leaf where the transform
    leaves such entries alone::

        class Marked(Transform):
            @takes_leaf
            def transform_observation_spec(self, spec):
                spec["mark"] = Unbounded((1,))
                return spec
    """
    kind = _kind_of(method)

    @functools.wraps(method)
    def of_either(self: Any, spec: Spec) -> Spec:
        if isinstance(spec, Composite):
            return method(self, spec)
        env = self.parent
        if env is not None and spec.shape[: len(env.batch_size)] == env.batch_size:
            around = getattr(env, f"full_{kind}_spec").clone()
        else:
            around = Composite(shape=torch.Size(()), device=spec.device)
        pairs = _pairs(self, kind)
        for key, _ in pairs:
            around.set(key, spec.clone())
        after = method(self, around)
        for key in [*(out_key for _, out_key in pairs), *(key for key, _ in pairs)]:
            leaf: Spec | None = after.get(key, None)
            if leaf is not None:
                return leaf
        return spec

    return of_either


def map_leaves(transform: Any, kind: str, spec: Composite, method: Callable[[Spec], Spec]) -> Composite:
    """Call a ``transform_..._spec`` that is written for leaves with those of a Composite that it is about.

    Args:
        transform: the transform.
        kind: of the spec: ``"observation"``, ``"reward"``, ...
        spec: the spec before the transform, which is written into.
        method: the method, of the transform.

    Returns:
        ``spec``.

    Raises:
        SpecError: there are several entries, and the transform does not say which of them it reads.
    """
    there = list(spec.keys(include_nested=True, leaves_only=True))
    named = transform.in_keys_inv if kind in INPUT_KINDS else transform.in_keys
    pairs = [pair for pair in _pairs(transform, kind) if pair[0] in there] if named else []
    if not pairs and len(there) == 1:
        pairs = [(there[0], there[0])]
    if not pairs:
        raise SpecError(
            f"{type(transform).__name__}.transform_{kind}_spec was given a Composite of {there} and returned one leaf. "
            "Return the Composite with its entries changed, or give the transform the in_keys that it is about."
        )
    keys, out_keys = map(list, zip(*pairs, strict=True))
    _mapped(transform, lambda _, leaf: method(leaf), spec, keys, out_keys, move=kind in INPUT_KINDS)
    return spec


def _kind_of(method: Callable[..., Any]) -> str:
    """The kind of specs that a ``transform_<kind>_spec`` is about."""
    return method.__name__.removeprefix("transform_").removesuffix("_spec")


def _pairs(transform: Any, kind: str) -> list[tuple[Any, Any]]:
    """The entries of a kind that a transform reads, each with the one that it writes for it; never none."""
    inverse = kind in INPUT_KINDS
    keys, out_keys = (
        (transform.in_keys_inv, transform.out_keys_inv) if inverse else (transform.in_keys, transform.out_keys)
    )
    if len(keys) != len(out_keys):
        # Several entries become one, or one becomes several.
        out_keys = [out_keys[0]] * len(keys) if out_keys else keys
    env = transform.parent
    there = [] if env is None else list(getattr(env, f"full_{kind}_spec").keys(include_nested=True, leaves_only=True))
    pairs = list(zip(map(as_key, keys), map(as_key, out_keys), strict=True))
    found = [pair for pair in pairs if pair[0] in there]
    if not found:
        found = [pair for pair in pairs if _NAMES.get(names_of(pair[0])[-1], kind) == kind]
    return found or [(kind, kind)]
