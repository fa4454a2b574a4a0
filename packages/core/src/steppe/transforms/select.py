"""Transforms that leave out, keep or rename entries."""

from __future__ import annotations

from typing import Any

from tensordict import TensorDictBase, is_non_tensor

from steppe.errors import SpecError
from steppe.specs import Composite
from steppe.transforms.compiled.hooks import EnvSpecs, Hooks, RowHooks, set_beside
from steppe.transforms.compiled.planned import PlannedTransform
from steppe.transforms.keys import as_key, drop_empty_groups, names_of
from steppe.transforms.whole_specs import WholeSpecs

__all__ = ["ExcludeTransform", "RemoveEmptySpecs", "RenameTransform", "SelectTransform"]

_FLAGS = ("done", "terminated", "truncated")


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


def _each(owner: str, keys: tuple[Any, ...]) -> list[Any]:
    for key in keys:
        if isinstance(key, list):
            raise SpecError(f"{owner} takes each key as an argument of its own: {owner}(*{key!r}).")
    return [as_key(key) for key in keys]


class ExcludeTransform(WholeSpecs):
    """Leaves entries out of what the environment returns.

    Args:
        *excluded_keys: a name or a tuple of names each; everything below goes too. Without any it changes nothing, and
            keys that are not there are passed over.
        inverse: leave them out of what the environment is given instead.

    Raises:
        SpecError: a key is neither a name nor a tuple; or, when used, a key that each step needs.
    """

    writes_done = False
    writes_step = False

    def __init__(self, *excluded_keys: Any, inverse: bool = False) -> None:
        super().__init__()
        self.excluded_keys = _each("ExcludeTransform", excluded_keys)
        self.inverse = inverse

    def _call(self, next_tensordict: TensorDictBase) -> TensorDictBase:
        if self.inverse:
            return next_tensordict
        kept = next_tensordict.exclude(*self.excluded_keys)
        drop_empty_groups(kept, self.excluded_keys)
        return kept

    def _reset(self, tensordict: TensorDictBase | None, tensordict_reset: TensorDictBase) -> TensorDictBase:
        return self._call(tensordict_reset)

    def forward(self, tensordict: TensorDictBase) -> TensorDictBase:
        """Return data that is there already without the entries."""
        return self._call(tensordict)

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


class SelectTransform(WholeSpecs):
    """Keeps some of what the environment returns, and leaves the rest out.

    Entries that each step reads from the data (states, such as the counts of other transforms) are kept too.

    Args:
        *selected_keys: a name or a tuple of names each; with everything below.
        keep_rewards: keep the rewards.
        keep_dones: keep the done entries.

    Attributes:
        selected_keys, keep_reward_keys, keep_done_keys: the arguments.
    """

    writes_done = False

    def __init__(self, *selected_keys: Any, keep_rewards: bool = True, keep_dones: bool = True) -> None:
        super().__init__()
        self.selected_keys = _each("SelectTransform", selected_keys)
        self.keep_reward_keys = keep_rewards
        self.keep_done_keys = keep_dones

    def _kept(self, specs: EnvSpecs) -> list[Any]:
        kept = [*self.selected_keys, *_leaves(specs.state)]
        kept += _leaves(specs.reward) if self.keep_reward_keys else []
        return kept + (_leaves(specs.done) if self.keep_done_keys else [])

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
        return (type(self), self.keep_reward_keys, self.keep_done_keys, tuple(self.selected_keys))

    def hooks(self, specs: EnvSpecs) -> Hooks:
        kept = self._kept(specs)

        def select(_: Any, data: TensorDictBase) -> TensorDictBase:
            return data.select(*kept, strict=False)

        return Hooks(step=select, reset=select, reads_root=False, rows=_NOTHING)

    def forward(self, tensordict: TensorDictBase) -> TensorDictBase:
        """Keep the selected keys of data that is there already, and rewards and done entries.

        These, and states, are those of the environment where the transform has one, otherwise those at the root.
        """
        env = self.parent
        if env is not None:
            return tensordict.select(*self._kept(EnvSpecs.of(env)), strict=False)
        kept = list(self.selected_keys)
        kept += ["reward"] if self.keep_reward_keys else []
        kept += _FLAGS if self.keep_done_keys else []
        return tensordict.select(*kept, strict=False)

    def _repr_keys(self) -> Any:
        return ("selected_keys",)


class RemoveEmptySpecs(PlannedTransform):
    """Leaves out entries that hold nothing: Composites without leaves, and TensorDicts without entries.

    What the environment has to be given is completed with them again.
    """

    def transform_specs(self, specs: EnvSpecs) -> EnvSpecs:
        specs = specs.copy()
        for spec in (specs.observation, specs.reward, specs.done, specs.action, specs.state):
            _drop_empty(spec)
        return specs

    def shared_key(self) -> Any:
        return (type(self),)

    def hooks(self, specs: EnvSpecs) -> Hooks:
        empty = [key for spec in (specs.action, specs.state) for key in _empty_keys(spec)]

        def complete(data: TensorDictBase) -> TensorDictBase:
            for key in empty:
                if data.get(key, None) is None:
                    data.create_nested(key)
            return data

        return Hooks(
            step=lambda _, following: _without_empty(following),
            reset=lambda _, fresh: _without_empty(fresh),
            inverse=complete if empty else None,
            reads_root=False,
            rows=_NOTHING,
        )

    def forward(self, tensordict: TensorDictBase) -> TensorDictBase:
        """Remove them from data that is there already, in place."""
        return _without_empty(tensordict)


def _empty_keys(spec: Composite) -> list[Any]:
    """The Composites without leaves; of those below one another the lowest."""
    found: list[Any] = []
    for name, child in spec.items():
        if isinstance(child, Composite) and child.is_empty(recurse=True):
            below = _empty_keys(child)
            found += [as_key((name, key)) for key in below] or [name]
    return found


def _without_empty(data: TensorDictBase) -> TensorDictBase:
    for name in list(data.keys()):
        value = data.get(name)
        if isinstance(value, TensorDictBase) and not is_non_tensor(value):
            _without_empty(value)
            if not len(list(value.keys())):
                data.pop(name)
    return data


class RenameTransform(PlannedTransform):
    """Renames entries.

    An entry that each step reads from the data (a state) gets its name back on the way to the environment, without
    being listed in ``in_keys_inv``. ``done`` has to stay; a copy of it, and ``terminated`` and ``truncated`` under
    other names, are observations.

    Args:
        in_keys: names that the environment has.
        out_keys: names that the caller sees.
        in_keys_inv: names of actions and states that the environment reads.
        out_keys_inv: names that the caller writes them under.
        create_copy: keep the entry under its old name too. The two share their tensor.

    Raises:
        SpecError: ``done`` would be gone.
        KeyError: the environment, or the data, has no such entry.
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
        taken = []
        for key, out_key in self._pairs:
            for spec in (specs.observation, specs.reward, specs.done):
                leaf = spec.get(key, None)
                if leaf is None:
                    continue
                if spec is specs.done:
                    leaf = leaf.clone()
                    if names_of(key)[-1] == "done" and not self.create_copy:
                        raise SpecError(
                            f"RenameTransform: without {key!r} no episode ends. create_copy=True keeps it beside "
                            f"{out_key!r}."
                        )
                if not self.create_copy:
                    spec.pop(key)
                taken.append((spec, out_key, leaf))
                break
            else:
                found = [*_leaves(specs.observation), *_leaves(specs.reward), *_leaves(specs.done)]
                raise KeyError(f"RenameTransform: the environment has no entry {key!r} to rename, but {found}.")
        for spec, out_key, leaf in taken:
            flag = spec is specs.done and names_of(out_key)[-1] in _FLAGS
            set_beside(specs.observation if spec is specs.done and not flag else spec, out_key, leaf, spec)
        for spec in (specs.observation, specs.reward, specs.done):
            _drop_empty(spec)
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
            return _renamed(data, outward, keep=copies, strict=not self.missing_tolerance)

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
        """Rename entries of data that is there already, in place."""
        return _renamed(tensordict, self._pairs, keep=self.create_copy, strict=not self.missing_tolerance)

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
        for key, _ in pairs:
            data.pop(key, None)
    for out_key, value in found:
        data.set(out_key, value)
    if not keep:
        drop_empty_groups(data, [key for key, _ in pairs])
    return data
