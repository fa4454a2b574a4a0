"""Transforms that leave out, keep or rename entries."""

from __future__ import annotations

from typing import Any

from tensordict import TensorDictBase

from steppe.errors import SpecError
from steppe.specs import Composite
from steppe.transforms.base import Transform
from steppe.transforms.compiled.hooks import EnvSpecs, Hooks, RowHooks, set_beside
from steppe.transforms.compiled.planned import PlannedTransform
from steppe.transforms.keys import as_key, names_of

__all__ = ["ExcludeTransform", "RenameTransform", "SelectTransform"]


def _below(key: Any, above: list[Any]) -> bool:
    """Whether a key is one of ``above``, or lies below one."""
    names = names_of(key)
    return any(names[: len(names_of(other))] == names_of(other) for other in above)


def _leaves(spec: Composite) -> list[Any]:
    return list(spec.keys(include_nested=True, leaves_only=True))


#: Leaving out entries is nothing to do in rows: what the specs lack has no place in the caller's.
_NOTHING = RowHooks()


def _drop_empty(spec: Composite) -> Composite:
    for key, child in list(spec.items()):
        if isinstance(child, Composite):
            _drop_empty(child)
            if child.is_empty():
                spec.pop(key)
    return spec


def _refuse_states(name: str, dropped: list[Any], specs: EnvSpecs) -> None:
    needed = [key for key in dropped if specs.state.get(key, None) is not None]
    if needed:
        raise SpecError(
            f"{name}: {needed[0]!r} is a state, which each step reads from the data; it cannot be left out."
        )


class ExcludeTransform(Transform):
    """Leaves entries out of what the environment returns.

    Args:
        *excluded_keys: a name or a tuple of names each; everything below goes too.
        inverse: leave them out of what the environment is given instead.

    Raises:
        SpecError: no keys; or, when used, a key that each step needs.
    """

    def __init__(self, *excluded_keys: Any, inverse: bool = False) -> None:
        super().__init__()
        if not excluded_keys:
            raise SpecError("ExcludeTransform: give at least one key.")
        self.excluded_keys = [as_key(key) for key in excluded_keys]
        self.inverse = inverse

    def _call(self, next_tensordict: TensorDictBase) -> TensorDictBase:
        return next_tensordict if self.inverse else next_tensordict.exclude(*self.excluded_keys)

    def _reset(self, tensordict: TensorDictBase | None, tensordict_reset: TensorDictBase) -> TensorDictBase:
        return self._call(tensordict_reset)

    def _inv_call(self, tensordict: TensorDictBase) -> TensorDictBase:
        return tensordict.exclude(*self.excluded_keys) if self.inverse else tensordict

    def shared_key(self) -> Any:
        return (type(self), self.inverse, tuple(self.excluded_keys))

    def hooks(self, specs: EnvSpecs) -> Hooks:
        if self.inverse:
            return Hooks(inverse=self._inv_call)
        return Hooks(
            step=lambda _, following: self._call(following), reset=self._reset, reads_root=False, rows=_NOTHING
        )

    def transform_specs(self, specs: EnvSpecs) -> EnvSpecs:
        if self.inverse:
            return specs
        specs = specs.copy()
        for spec in (specs.observation, specs.reward, specs.done):
            dropped = [key for key in _leaves(spec) if _below(key, self.excluded_keys)]
            _refuse_states("ExcludeTransform", dropped, specs)
            for key in dropped:
                spec.pop(key)
            _drop_empty(spec)
        return specs

    def _repr_keys(self) -> Any:
        return ("excluded_keys", "inverse")


class SelectTransform(Transform):
    """Keeps some of what the environment returns, and leaves the rest out.

    Entries that each step reads from the data (states, such as the counts of other transforms) are kept too.

    Args:
        *selected_keys: a name or a tuple of names each; with everything below.
        keep_rewards: keep the rewards.
        keep_dones: keep the done entries.
    """

    def __init__(self, *selected_keys: Any, keep_rewards: bool = True, keep_dones: bool = True) -> None:
        super().__init__()
        self.selected_keys = [as_key(key) for key in selected_keys]
        self.keep_rewards = keep_rewards
        self.keep_dones = keep_dones

    def _kept(self, specs: EnvSpecs) -> list[Any]:
        kept = [*self.selected_keys, *_leaves(specs.state)]
        kept += _leaves(specs.reward) if self.keep_rewards else []
        return kept + (_leaves(specs.done) if self.keep_dones else [])

    def transform_specs(self, specs: EnvSpecs) -> EnvSpecs:
        kept = self._kept(specs)
        specs = specs.copy()
        for spec in (specs.observation, specs.reward, specs.done):
            for key in _leaves(spec):
                if not _below(key, kept):
                    spec.pop(key)
            _drop_empty(spec)
        return specs

    def shared_key(self) -> Any:
        return (type(self), self.keep_rewards, self.keep_dones, tuple(self.selected_keys))

    def hooks(self, specs: EnvSpecs) -> Hooks:
        kept = self._kept(specs)

        def select(_: Any, data: TensorDictBase) -> TensorDictBase:
            return data.select(*kept, strict=False)

        return Hooks(step=select, reset=select, reads_root=False, rows=_NOTHING)

    def forward(self, tensordict: TensorDictBase) -> TensorDictBase:
        """Keep the selected keys of data that is there already, and rewards and done entries at its root."""
        kept = list(self.selected_keys)
        kept += ["reward"] if self.keep_rewards else []
        kept += ["done", "terminated", "truncated"] if self.keep_dones else []
        return tensordict.select(*kept, strict=False)

    def _repr_keys(self) -> Any:
        return ("selected_keys",)


class RenameTransform(PlannedTransform):
    """Renames entries.

    An entry that each step reads from the data (a state) gets its name back on the way to the environment, without
    being listed in ``in_keys_inv``.

    Args:
        in_keys: names that the environment has.
        out_keys: names that the caller sees.
        in_keys_inv: names of actions and states that the environment reads.
        out_keys_inv: names that the caller writes them under.
        create_copy: keep the entry under its old name too. The two share their tensor.
    """

    def __init__(
        self,
        in_keys: Any,
        out_keys: Any,
        in_keys_inv: Any = None,
        out_keys_inv: Any = None,
        create_copy: bool = False,
    ) -> None:
        super().__init__(in_keys, out_keys, in_keys_inv, out_keys_inv)
        self.create_copy = create_copy

    def _inward(self, specs: EnvSpecs) -> list[tuple[Any, Any]]:
        """Pairs of what the caller writes and what the environment reads."""
        pairs = list(self._inverse_pairs)
        if not self.create_copy:
            known = {key for _, key in pairs}
            pairs += [
                (out_key, key)
                for key, out_key in self._pairs
                if key not in known and specs.state.get(key, None) is not None
            ]
        return pairs

    def transform_specs(self, specs: EnvSpecs) -> EnvSpecs:
        specs = specs.copy()
        for key, out_key in self._pairs:
            for spec in (specs.observation, specs.reward, specs.done):
                leaf = spec.get(key, None)
                if leaf is None:
                    continue
                if not self.create_copy:
                    spec.pop(key)
                set_beside(spec, out_key, leaf, spec)
                _drop_empty(spec)
                break
            else:
                raise KeyError(f"RenameTransform: the environment has no entry {key!r} to rename.")
        for out_key, key in self._inward(specs):
            for spec in (specs.action, specs.state):
                leaf = spec.get(key, None)
                if leaf is not None:
                    if not self.create_copy:
                        spec.pop(key)
                    set_beside(spec, out_key, leaf, spec)
                    _drop_empty(spec)
        return specs

    def hooks(self, specs: EnvSpecs) -> Hooks:
        inward, outward = self._inward(specs), self._pairs
        copies = self.create_copy

        def step(_: Any, data: TensorDictBase) -> TensorDictBase:
            return _renamed(data, outward, keep=copies, strict=True)

        def reset(_: Any, data: TensorDictBase) -> TensorDictBase:
            return _renamed(data, outward, keep=copies)

        def inverse(data: TensorDictBase | None) -> Any:
            return None if data is None else _renamed(data, inward, keep=copies)

        return Hooks(
            step=step if outward else None,
            reset=reset if outward else None,
            inverse=inverse if inward else None,
            before_reset=inverse if inward else None,
        )

    def forward(self, tensordict: TensorDictBase) -> TensorDictBase:
        """Rename entries of data that is there already."""
        return _renamed(tensordict, self._pairs, keep=self.create_copy, strict=True)

    def _inv_call(self, tensordict: TensorDictBase) -> TensorDictBase:
        return _renamed(tensordict, self._inverse_pairs, keep=self.create_copy)


def _renamed(
    data: TensorDictBase, pairs: list[tuple[Any, Any]], *, keep: bool = False, strict: bool = False
) -> TensorDictBase:
    # All are taken out before any is put back, so that two entries can change places.
    found = []
    for key, out_key in pairs:
        value = data.get(key, None)
        if value is None:
            if strict:
                raise KeyError(
                    f"RenameTransform: there is no entry {key!r} in the data, which has {list(data.keys())}."
                )
            continue
        found.append((out_key, value))
    if not keep:
        data = data.exclude(*(key for key, _ in pairs))
    for out_key, value in found:
        data.set(out_key, value)
    return data
