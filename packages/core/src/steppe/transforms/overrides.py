"""Overrides: which methods a subclass of a transform overrides, and the hooks and specs that follow."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from steppe.errors import SpecError
from steppe.specs import INPUT_KINDS, OUTPUT_KINDS, is_memory
from steppe.storage import shallow_copy
from steppe.transforms.compiled.transform_hooks import EnvSpecs, Hooks, pair_hook, set_beside

if TYPE_CHECKING:
    from steppe.transforms.base import Transform

__all__ = ["Overrides"]

#: The methods that replace a part of ``hooks`` if a subclass overrides them.
_METHODS = (
    "_step",
    "_call",
    "_reset",
    "_apply_transform",
    "_inv_call",
    "_inv_apply_transform",
    "_reset_env_preprocess",
)
#: The methods that replace a part of ``transform_specs`` if a subclass overrides them.
_SPEC_METHODS = (
    "transform_observation_spec",
    "transform_reward_spec",
    "transform_done_spec",
    "transform_action_spec",
    "transform_state_spec",
    "transform_output_spec",
    "transform_input_spec",
)


class Overrides:
    """Find which class defines each method of a transform.

    The ``hooks`` (or ``transform_specs``) of a class describe all that it does. If a subclass overrides a method such
    as ``_step``, this method is used instead of the matching hook.

    Args:
        transform: the transform.
        base: ``Transform``, whose methods change nothing.
    """

    def __init__(self, transform: Transform, base: type[Transform]) -> None:
        self._transform, self._base = transform, base

    def owner_of(self, name: str) -> type:
        """Return the class that defines a method."""
        return next(cls for cls in type(self._transform).__mro__ if name in vars(cls))

    def has(self, name: str, owner: type | None = None) -> bool:
        """Whether a subclass of ``owner`` (default: Transform) overrides a method, or the object has its own."""
        if name in vars(self._transform):
            return True
        mro = type(self._transform).__mro__
        return any(name in vars(cls) for cls in mro[: mro.index(self._base if owner is None else owner)])

    def of_methods(self, name: str) -> bool:
        """Whether a subclass of the class that defines ``name`` overrides one of the methods of transforms."""
        owner = self.owner_of(name)
        return owner is not self._base and any(self.has(method, owner) for method in _METHODS)

    def hooks(self, specs: EnvSpecs) -> Hooks:
        """Return ``transform.hooks(specs)``, replaced by the methods that a subclass overrides."""
        transform = self._transform
        hooks = transform.hooks(specs)
        if self.of_methods("hooks"):
            methods = self.method_hooks(specs, self.owner_of("hooks"))
            hooks = replace(hooks, rows=None, pairs=None)
            if methods.step is not None:
                hooks.step, hooks.reads_root = methods.step, methods.reads_root
            if methods.inverse is not None:
                hooks.inverse, hooks.inverse_pairs = methods.inverse, methods.inverse_pairs
            hooks.reset = methods.reset or hooks.reset
            hooks.before_reset = methods.before_reset or hooks.before_reset
        if transform.enable_inv_on_reset and hooks.before_reset is None and hooks.inverse is not None:
            actions = set(specs.action.keys(include_nested=True, leaves_only=True))
            # The argument of a reset has no action, so an inverse of actions alone has nothing to do.
            if hooks.inverse_pairs is None or not {key for _, key in hooks.inverse_pairs} <= actions:
                hooks.before_reset = transform._reset_env_preprocess
        return hooks

    def method_hooks(self, specs: EnvSpecs, owner: type) -> Hooks:
        """Return the hooks of the methods that subclasses of ``owner`` override."""
        transform = self._transform
        by_value = owner is self._base  # otherwise the hooks of the class handle single values

        def overrides(name: str) -> bool:
            return self.has(name, owner)

        hooks = Hooks()
        if overrides("_step"):
            hooks.step = lambda td, following: transform._step(shallow_copy(td), following)
            hooks.reads_root = transform.reads_root
        elif overrides("_call") and not self.has("_step"):
            hooks.step = lambda _, following: transform._call(following)
            hooks.reads_root = False
        elif overrides("_apply_transform") and transform.in_keys and by_value:
            forward = pair_hook(transform.key_pairs, transform._apply_transform, transform.missing_entry)
            hooks.step = lambda _, following: forward(following)
            hooks.reads_root = False
            if not overrides("_reset"):
                hooks.pairs = transform.key_pairs
        if overrides("_reset"):
            hooks.reset = lambda td, fresh: transform._reset(fresh.empty() if td is None else shallow_copy(td), fresh)
        elif overrides("_apply_transform") and transform.in_keys and by_value:
            tolerant = pair_hook(transform.key_pairs, transform._apply_transform, None)
            hooks.reset = lambda _, fresh: tolerant(fresh)
        if overrides("_inv_call"):
            hooks.inverse = transform._inv_call
        elif overrides("_inv_apply_transform") and transform.in_keys_inv and by_value:
            hooks.inverse = pair_hook(
                transform.inverse_key_pairs, transform._inv_apply_transform, transform.missing_entry
            )
            hooks.inverse_pairs = transform.inverse_key_pairs
        if overrides("_reset_env_preprocess"):
            hooks.before_reset = transform._reset_env_preprocess
        return hooks

    def specs_behind(self, specs: EnvSpecs) -> EnvSpecs:
        """Return the specs behind the transform, with its memory as observations and states."""
        memory = self._transform.memory_spec(specs)
        after = self._specs(specs)
        if memory is None:
            return after
        after = after.copy()
        for key, leaf in memory.items(include_nested=True, leaves_only=True):
            if not is_memory(key) or after.observation.get(key, None) is not None:
                raise SpecError(
                    f"{type(self._transform).__name__}.memory_spec: {key!r} "
                    + ("exists already." if is_memory(key) else "must have a name that begins with two underscores.")
                )
            for spec in (after.observation, after.state):
                set_beside(spec, key, leaf, memory)
        return after

    @property
    def has_specs_at_once(self) -> bool:
        """Whether a class overrides ``transform_specs``, and no subclass of it a method for single specs."""
        owner = self.owner_of("transform_specs")
        return owner is not self._base and not any(self.has(name, owner) for name in _SPEC_METHODS)

    def _specs(self, specs: EnvSpecs) -> EnvSpecs:
        after = self._transform.transform_specs(specs)
        owner = self.owner_of("transform_specs")
        return after if owner is self._base or self.has_specs_at_once else self.by_methods(specs, after, owner)

    def by_methods(self, specs: EnvSpecs, after: EnvSpecs, owner: type) -> EnvSpecs:
        """Return ``after``, with the specs that the methods of subclasses of ``owner`` make of ``specs``."""
        transform = self._transform
        kinds: dict[str, Any] = {}
        for method, packed, names in (
            ("transform_output_spec", specs.output, [*OUTPUT_KINDS]),
            ("transform_input_spec", specs.input, [*INPUT_KINDS]),
        ):
            if self.has(method, owner):
                changed = getattr(transform, method)(packed)
            else:
                names = [kind for kind in names if self.has(f"transform_{kind}_spec", owner)]
                changed = transform._each_kind_behind(packed, names)
            kinds.update((kind, changed[f"full_{kind}_spec"]) for kind in names)
        return after.changed(
            **kinds,
            batch_size=transform.transform_env_batch_size(specs.batch_size),
            device=transform.transform_env_device(specs.device),
        )
