"""Transforms that drop, keep or rename entries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tensordict import NestedKey, TensorDictBase, is_non_tensor

from steppe.errors import SpecError
from steppe.specs import Composite
from steppe.transforms import (
    EnvSpecs,
    Hooks,
    PlannedTransform,
    RowHooks,
    Transform,
    as_key,
    names_of,
    set_beside,
)

from .named import drop_empty_groups

__all__ = ["ExcludeTransform", "RemoveEmptySpecs", "RenameTransform", "SelectTransform"]

_FLAGS = ("done", "terminated", "truncated")


def _below(key: Any, above: list[Any]) -> bool:
    """Whether a key is one of ``above``, or nested in one."""
    names = names_of(key)
    return any(names[: len(names_of(other))] == names_of(other) for other in above)


def _leaves(spec: Composite) -> list[Any]:
    return list(spec.keys(include_nested=True, leaves_only=True))


#: Rows hold only the entries of the final specs, so dropping entries takes no work there.
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
            f"{name}: {needed[0]!r} is a state, which each step reads from the data, so it cannot be dropped."
        )


def _each(owner: str, keys: tuple[Any, ...]) -> list[Any]:
    for key in keys:
        if isinstance(key, list):
            raise SpecError(f"{owner} takes each key as a separate argument: {owner}(*{key!r}).")
    return [as_key(key) for key in keys]


class ExcludeTransform(Transform):
    """Drop entries from the data that the environment returns.

    >>> from steppe import Compose, ExcludeTransform, InitTracker, TransformedEnv, make_env
    >>> env = TransformedEnv(make_env("gym:CartPole-v1"), Compose(InitTracker(), ExcludeTransform("is_init")))
    >>> "is_init" in env.reset()
    False

    Args:
        *excluded_keys: names or tuples of names; nested entries are dropped too. Missing entries are ignored.
        inverse: drop the entries from the data that the environment receives instead.

    Raises:
        SpecError: a key is neither a name nor a tuple, or belongs to a state, which each step reads.
    """

    writes_done = False
    writes_step = False
    needs_all_rows = False

    def __init__(self, *excluded_keys: NestedKey, inverse: bool = False) -> None:
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
        """Drop the entries from data that comes from no environment."""
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


class SelectTransform(Transform):
    """Keep some entries of the environment's data, and drop all others.

    States are always kept, because each step reads them from the data: the counts of other transforms, for example.

    >>> from steppe import Compose, InitTracker, SelectTransform, TransformedEnv, make_env
    >>> env = TransformedEnv(make_env("gym:CartPole-v1"), Compose(InitTracker(), SelectTransform("observation")))
    >>> "is_init" in env.reset()
    False

    Args:
        *selected_keys: names or tuples of names; nested entries are kept too.
        keep_rewards: keep the rewards.
        keep_dones: keep the done entries.

    Attributes:
        selected_keys, keep_reward_keys, keep_done_keys: the arguments.
    """

    writes_done = False

    def __init__(self, *selected_keys: NestedKey, keep_rewards: bool = True, keep_dones: bool = True) -> None:
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
        """Keep the selected entries, rewards and done entries of stored data.

        Rewards, done entries and states are those of the transform's environment, or else those at the root.
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
    """Drop empty groups: Composites without leaves, and TensorDicts without entries.

    Empty groups are added again to the data that the environment receives.

    >>> from steppe import RemoveEmptySpecs, TransformedEnv, make_env
    >>> env = TransformedEnv(make_env("gym:CartPole-v1"), RemoveEmptySpecs())
    >>> len(env.rollout(3))
    3
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
        """Drop empty groups of data that comes from no environment, in place."""
        return _without_empty(tensordict)


def _empty_keys(spec: Composite) -> list[Any]:
    """Return the keys of the innermost Composites without leaves."""
    empty: list[Any] = []
    for name, child in spec.items():
        if isinstance(child, Composite) and child.is_empty(recurse=True):
            below = _empty_keys(child)
            empty += [as_key((name, key)) for key in below] or [name]
    return empty


def _without_empty(data: TensorDictBase) -> TensorDictBase:
    for name in list(data.keys()):
        value = data.get(name)
        if isinstance(value, TensorDictBase) and not is_non_tensor(value):
            _without_empty(value)
            if not len(list(value.keys())):
                data.pop(name)
    return data


class RenameTransform(PlannedTransform):
    """Rename entries.

    A state is renamed back for the environment, which reads it at each step, even if ``in_keys_inv`` does not list it.
    ``done`` cannot be renamed, only copied. Done entries under other names are observations.

    >>> from steppe import RenameTransform, TransformedEnv, make_env
    >>> env = TransformedEnv(make_env("gym:CartPole-v1"), RenameTransform(["observation"], ["obs"]))
    >>> env.reset()["obs"].shape
    torch.Size([4])

    Args:
        in_keys: keys of the environment.
        out_keys: new keys, as many as ``in_keys``.
        in_keys_inv: keys of actions and states that the environment reads.
        out_keys_inv: keys that the caller writes instead, as many as ``in_keys_inv``.
        create_copy: keep the entry under its old key too. Both share the tensor.

    Raises:
        SpecError: ``done`` would be removed.
        KeyError: the environment or the data has no such entry.
    """

    def __init__(
        self,
        in_keys: Sequence[NestedKey],
        out_keys: Sequence[NestedKey],
        in_keys_inv: NestedKey | Sequence[NestedKey] | None = None,
        out_keys_inv: NestedKey | Sequence[NestedKey] | None = None,
        create_copy: bool = False,
    ) -> None:
        super().__init__(in_keys, out_keys, in_keys_inv, out_keys_inv)
        self.create_copy = create_copy

    def _inward(self, specs: EnvSpecs) -> list[tuple[Any, Any]]:
        """Return pairs of the key that the caller writes and the environment's key."""
        pairs = list(self.inverse_key_pairs)
        if not self.create_copy:
            known = {key for _, key in pairs}
            pairs += [
                (out_key, key)
                for key, out_key in self.key_pairs
                if key not in known and specs.state.get(key, None) is not None
            ]
        return pairs

    def masks_behind(self, masks: Mapping[NestedKey, NestedKey], link: Any) -> Mapping[NestedKey, NestedKey]:
        outward: dict[Any, Any] = dict(self.key_pairs)
        inward: dict[Any, Any] = {key: out_key for out_key, key in self._inward(link.before)}
        if self.create_copy:
            # The action at its new key replaces the action at its old key.
            return {new: mask for key, mask in masks.items() for new in (key, inward.get(key, key))}
        return {inward.get(key, key): outward.get(mask, mask) for key, mask in masks.items()}

    def transform_specs(self, specs: EnvSpecs) -> EnvSpecs:
        specs = specs.copy()
        renamed = []
        for key, out_key in self.key_pairs:
            for spec in (specs.observation, specs.reward, specs.done):
                leaf = spec.get(key, None)
                if leaf is None:
                    continue
                if spec is specs.done:
                    leaf = leaf.clone()
                    if names_of(key)[-1] == "done" and not self.create_copy:
                        raise SpecError(
                            f"RenameTransform: {key!r} cannot be removed, because it ends episodes. Pass "
                            f"create_copy=True to keep it beside {out_key!r}."
                        )
                if not self.create_copy:
                    spec.pop(key)
                renamed.append((spec, out_key, leaf))
                break
            else:
                if self.missing_tolerance:
                    continue
                keys = [*_leaves(specs.observation), *_leaves(specs.reward), *_leaves(specs.done)]
                raise KeyError(f"RenameTransform: the environment has no entry {key!r} to rename. It has {keys}.")
        for spec, out_key, leaf in renamed:
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
        inward, outward = self._inward(specs), self.key_pairs
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
            reads_root=False,
        )

    def forward(self, tensordict: TensorDictBase) -> TensorDictBase:
        """Rename entries of data that comes from no environment, in place."""
        return _renamed(tensordict, self.key_pairs, keep=self.create_copy, strict=not self.missing_tolerance)

    def _inv_call(self, tensordict: TensorDictBase) -> TensorDictBase:
        return _renamed(tensordict, self.inverse_key_pairs, keep=self.create_copy)


def _renamed(
    data: TensorDictBase, pairs: list[tuple[Any, Any]], *, keep: bool = False, strict: bool = False
) -> TensorDictBase:
    # All entries are removed before any is set, so that two entries can swap names.
    renamed = []
    for key, out_key in pairs:
        value = data.get(key, None)
        if value is None:
            if strict:
                raise KeyError(f"RenameTransform: the data has no entry {key!r}. It has {list(data.keys())}.")
            continue
        renamed.append((out_key, value))
    if not keep:
        for key, _ in pairs:
            data.pop(key, None)
    for out_key, value in renamed:
        data.set(out_key, value)
    if not keep:
        drop_empty_groups(data, [key for key, _ in pairs])
    return data
