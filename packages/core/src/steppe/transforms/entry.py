"""EntryTransform: the base of transforms of single entries, of whatever kind these are."""

from __future__ import annotations

from typing import Any

from steppe.errors import SpecError
from steppe.specs import Composite, Spec
from steppe.transforms.compiled.hooks import EnvSpecs, Hooks, set_beside
from steppe.transforms.keys import names_of
from steppe.transforms.row_kernels import RowKernels
from steppe.transforms.whole_specs import WholeSpecs

__all__ = ["EntryTransform"]

_FLAGS = ("done", "terminated", "truncated")


class EntryTransform(RowKernels, WholeSpecs):
    """Base of transforms of single entries: observations, rewards and done entries; actions and states inverted.

    A subclass writes ``_apply_transform(value)``, and ``transform_leaf(leaf, batch_dims)``, the spec of what it
    returns. One that has an inverse writes ``_inv_apply_transform(value)``, and ``transform_leaf_inv`` where the spec
    of what the caller writes is another one. ``row_kernel`` or ``apply_into`` beside ``_apply_transform`` make it
    faster.

    Args:
        in_keys: entries to read after a step or reset; by default none, or all rewards of the environment for a class
            that says ``of_rewards = True``.
        out_keys: keys to write, one for each; by default those of ``in_keys``.
        in_keys_inv: actions and states that the environment reads.
        out_keys_inv: keys that the caller writes for them.

    Raises:
        SpecError: the environment has no such entry, or it is no tensor.
    """

    writes_step = False
    keeps_nothing = True
    #: Whether it is about the rewards of the environment where it is given no ``in_keys``.
    of_rewards: bool = False

    def default_keys(self, specs: EnvSpecs | None) -> list[Any]:
        if not self.of_rewards:
            return []
        return ["reward"] if specs is None else _keys(specs.reward)

    @property
    def writes_done(self) -> bool:
        """Whether it writes a done entry."""
        keys = self._out_keys or self._in_keys or ()
        return any(names_of(key)[-1] in _FLAGS for key in keys)

    def given_keys(self) -> tuple[Any, ...]:
        """The keys that it was given, for ``shared_key``."""
        given = (self._in_keys, self._out_keys, self._in_keys_inv, self._out_keys_inv)
        return tuple(None if keys is None else tuple(keys) for keys in given)

    # -- what a subclass writes -----------------------------------------------------------------------------------

    def transform_leaf(self, leaf: Spec, batch_dims: int) -> Spec:
        """Return the spec of ``_apply_transform(value)``.

        Args:
            leaf: a copy of the spec of ``value``.
            batch_dims: how many dimensions of its shape are those of the environment's batch.
        """
        raise NotImplementedError(f"{type(self).__name__} does not define transform_leaf(leaf, batch_dims).")

    def transform_leaf_inv(self, leaf: Spec, batch_dims: int) -> Spec:
        """Return the spec of what the caller writes for an entry that the environment takes.

        Args:
            leaf: a copy of the spec of what the environment takes.
            batch_dims: how many dimensions of its shape are those of the environment's batch.
        """
        return self.transform_leaf(leaf, batch_dims)

    # -- specs ----------------------------------------------------------------------------------------------------

    def hooks_in(self, specs: EnvSpecs) -> Hooks:
        self.find_keys(specs)
        if not self.missing_tolerance:
            self._check_there([key for key, _ in self._pairs], specs.observation, specs.reward, specs.done)
            # An inverse may also be of what the environment sees of its observations in the root.
            inverted = [key for _, key in self._inverse_pairs]
            self._check_there(inverted, specs.action, specs.state, specs.observation)
        return super().hooks_in(specs)

    def _check_there(self, keys: list[Any], *specs: Composite) -> None:
        for key in keys:
            leaf = next((leaf for spec in specs if (leaf := spec.get(key, None)) is not None), None)
            if leaf is None:
                found = [key for spec in specs for key in _keys(spec)]
                raise SpecError(f"{type(self).__name__}: the environment has no entry {key!r}. It has {found}.")
            if isinstance(leaf, Composite):
                raise SpecError(
                    f"{type(self).__name__}: {key!r} is a group of entries; name those below it, such as "
                    f"{(*names_of(key), next(iter(leaf.keys()), 'entry'))!r}."
                )

    def transform_specs(self, specs: EnvSpecs) -> EnvSpecs:
        specs = specs.copy()
        batch_dims = len(specs.batch_size)
        for key, out_key in self._pairs:
            for spec in (specs.observation, specs.reward, specs.done):
                leaf = spec.get(key, None)
                if leaf is not None:
                    other = spec is specs.done and names_of(out_key)[-1] not in _FLAGS
                    target = specs.observation if other else spec
                    set_beside(target, out_key, self.transform_leaf(leaf.clone(), batch_dims), spec)
                    break
        for out_key, key in self._inverse_pairs:
            for spec in (specs.action, specs.state):
                leaf = spec.get(key, None)
                if leaf is not None:
                    if out_key != key:
                        spec.pop(key)
                    set_beside(spec, out_key, self.transform_leaf_inv(leaf.clone(), batch_dims), spec)
        return specs


def _keys(spec: Composite) -> list[Any]:
    return list(spec.keys(include_nested=True, leaves_only=True))
