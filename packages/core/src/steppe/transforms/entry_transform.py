"""EntryTransform: the base class of transforms of single entries of any kind."""

from __future__ import annotations

from steppe.errors import SpecError
from steppe.specs import Composite, Spec
from steppe.transforms.base import Transform
from steppe.transforms.compiled.transform_hooks import EnvSpecs, Hooks, set_beside
from steppe.transforms.transform_keys import DONE_NAMES, Key, names_of

__all__ = ["EntryTransform"]


class EntryTransform(Transform):
    """Base class of transforms of single entries: observations, rewards and done entries; inverse: actions and states.

    A subclass overrides ``_apply_transform(value)`` and ``transform_leaf(leaf, batch_dims)``, which returns the spec of
    the result. With an inverse, it overrides ``_inv_apply_transform(value)`` too, and ``transform_leaf_inv`` if the
    spec of the caller's entry differs from ``transform_leaf``. ``row_kernel`` makes it faster.

    Args:
        in_keys: entries to read after a step or reset. Default: none, or all rewards of the environment if the class
            sets ``of_rewards = True``.
        out_keys: keys to write, as many as ``in_keys``. Default: ``in_keys``.
        in_keys_inv: actions and states that the environment reads.
        out_keys_inv: keys that the caller writes instead. Default: ``in_keys_inv``.

    Raises:
        SpecError: the environment has no such entry, or the key names a group of entries.
    """

    writes_step = False
    keeps_nothing = True
    #: Whether ``in_keys`` are the rewards of the environment by default.
    of_rewards: bool = False

    def default_keys(self, specs: EnvSpecs | None) -> list[Key]:
        if not self.of_rewards:
            return []
        return ["reward"] if specs is None else _keys(specs.reward)

    @property
    def writes_done(self) -> bool:
        """Whether it writes to a done entry."""
        keys = self._out_keys or self._in_keys or ()
        return any(names_of(key)[-1] in DONE_NAMES for key in keys)

    # -- methods to override --------------------------------------------------------------------------------------

    def transform_leaf(self, leaf: Spec, batch_dims: int) -> Spec:
        """Return the spec of ``_apply_transform(value)``.

        Args:
            leaf: a copy of the spec of ``value``.
            batch_dims: number of leading dimensions that are the batch size of the environment.
        """
        raise NotImplementedError(f"{type(self).__name__} does not define transform_leaf(leaf, batch_dims).")

    def transform_leaf_inv(self, leaf: Spec, batch_dims: int) -> Spec:
        """Return the spec of the entry that the caller writes, for an action or state of the environment.

        Args:
            leaf: a copy of the spec of the environment's entry.
            batch_dims: number of leading dimensions that are the batch size of the environment.
        """
        return self.transform_leaf(leaf, batch_dims)

    # -- specs ----------------------------------------------------------------------------------------------------

    def hooks_in(self, specs: EnvSpecs) -> Hooks:
        self.find_keys(specs)
        if not self.missing_tolerance:
            self._check_there([key for key, _ in self.key_pairs], specs.observation, specs.reward, specs.done)
            # The inverse may also apply to observations, which an environment may read from the root.
            inverted = [key for _, key in self.inverse_key_pairs]
            self._check_there(inverted, specs.action, specs.state, specs.observation)
        return super().hooks_in(specs)

    def _check_there(self, keys: list[Key], *specs: Composite) -> None:
        for key in keys:
            leaf = next((leaf for spec in specs if (leaf := spec.get(key, None)) is not None), None)
            if leaf is None:
                existing = [key for spec in specs for key in _keys(spec)]
                raise SpecError(f"{type(self).__name__}: the environment has no entry {key!r}. It has {existing}.")
            if isinstance(leaf, Composite):
                raise SpecError(
                    f"{type(self).__name__}: {key!r} is a group of entries. Pass the keys of its entries, such as "
                    f"{(*names_of(key), next(iter(leaf.keys()), 'entry'))!r}."
                )

    def transform_specs(self, specs: EnvSpecs) -> EnvSpecs:
        specs = specs.copy()
        batch_dims = len(specs.batch_size)
        for key, out_key in self.key_pairs:
            for spec in (specs.observation, specs.reward, specs.done):
                leaf = spec.get(key, None)
                if leaf is not None:
                    # A done entry under any other name is an observation.
                    observed = spec is specs.done and names_of(out_key)[-1] not in DONE_NAMES
                    target = specs.observation if observed else spec
                    set_beside(target, out_key, self.transform_leaf(leaf.clone(), batch_dims), spec)
                    break
        for out_key, key in self.inverse_key_pairs:
            for spec in (specs.action, specs.state):
                leaf = spec.get(key, None)
                if leaf is not None:
                    if out_key != key:
                        spec.pop(key)
                    set_beside(spec, out_key, self.transform_leaf_inv(leaf.clone(), batch_dims), spec)
        return specs


def _keys(spec: Composite) -> list[Key]:
    return list(spec.keys(include_nested=True, leaves_only=True))
