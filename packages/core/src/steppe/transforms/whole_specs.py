"""WholeSpecs: the base class of transforms whose specs depend on each other."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, TypeVar

import torch

from steppe.specs import INPUT_KINDS, OUTPUT_KINDS, SPEC_KINDS, Binary, Composite, Spec, Unbounded
from steppe.transforms.base import Transform
from steppe.transforms.compiled.transform_hooks import EnvSpecs
from steppe.transforms.spec_decorators import kind_of, takes_leaf

__all__ = ["WholeSpecs"]

_Method = TypeVar("_Method", bound=Callable[..., Any])


def _of_kind(method: _Method) -> _Method:
    """Return the method for the specs of one kind, which follows from ``transform_specs``."""
    kind = kind_of(method)

    @takes_leaf
    @functools.wraps(method)
    def transform_kind(self: Any, spec: Composite) -> Composite:
        if kind not in self.changed_kinds:
            return spec
        around = self.specs_around(**{kind: spec})
        with self.set_missing_tolerance(self.missing_tolerance or self.parent is None):
            after: Composite = getattr(self.transform_specs(around), kind)
        return after

    return transform_kind  # type: ignore[return-value]


class WholeSpecs(Transform):
    """Base class of transforms that override ``transform_specs``; the methods for single specs follow from it.

    Use it if an entry depends on several specs: a count has the shape of ``done``, a sum that of the reward. If a
    method for a single spec is called directly, the other specs are those of the environment before the transform, or,
    without an environment, ``reward``, ``done`` and ``terminated`` at the root. Entries that the transform reads and
    that none of these has are skipped, as with ``missing_tolerance``.

    Attributes:
        changed_kinds: class attribute, the kinds of specs that the class changes. Methods for other kinds return their
            argument.
    """

    changed_kinds: ClassVar[tuple[str, ...]] = SPEC_KINDS

    def transform_specs(self, specs: EnvSpecs) -> EnvSpecs:
        return specs

    transform_observation_spec = _of_kind(Transform.transform_observation_spec)
    transform_reward_spec = _of_kind(Transform.transform_reward_spec)
    transform_done_spec = _of_kind(Transform.transform_done_spec)
    transform_action_spec = _of_kind(Transform.transform_action_spec)
    transform_state_spec = _of_kind(Transform.transform_state_spec)

    def transform_output_spec(self, output_spec: Composite) -> Composite:
        return self._transform_packed(output_spec, OUTPUT_KINDS)

    def transform_input_spec(self, input_spec: Composite) -> Composite:
        return self._transform_packed(input_spec, INPUT_KINDS)

    def _transform_packed(self, packed: Composite, kinds: tuple[str, ...]) -> Composite:
        if not set(kinds) & set(self.changed_kinds):
            return packed
        specs = {kind: packed[f"full_{kind}_spec"] for kind in kinds if f"full_{kind}_spec" in packed.keys()}
        after = self.transform_specs(self.specs_around(**specs))
        return Composite({f"full_{kind}_spec": getattr(after, kind) for kind in specs}, shape=after.batch_size)

    def specs_around(self, **specs: Composite) -> EnvSpecs:
        """Return the specs of the environment before the transform, with some of them replaced.

        Args:
            **specs: at least one Composite by kind: ``observation``, ``reward``, ``done``, ``action``, ``state``.
        """
        first = next(iter(specs.values()))
        env = self.parent
        if env is not None and env.batch_size == first.shape:
            return EnvSpecs.of(env).changed(**specs)
        size, device = torch.Size(first.shape), first.device
        shape = torch.Size((*size, 1))
        flags = {name: Binary(shape=shape, dtype=torch.bool, device=device) for name in ("done", "terminated")}
        kinds: dict[str, Mapping[str, Spec]] = {"reward": {"reward": Unbounded(shape, device=device)}, "done": flags}
        defaults = {kind: Composite(kinds.get(kind, {}), shape=size, device=device) for kind in SPEC_KINDS}
        return EnvSpecs(**{**defaults, **specs}, batch_size=size, device=device)
