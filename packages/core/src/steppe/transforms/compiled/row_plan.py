"""RowPlan: the memory that each transform of a chain reads and writes on rows, planned once from their specs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from steppe.envs import RowLayout, Rows
from steppe.specs import Composite, is_host
from steppe.storage import Layout, no_storage_reason
from steppe.transforms.compiled.transform_hooks import Array, EnvSpecs, Hooks, Link
from steppe.transforms.transform_keys import DONE_NAMES, Key

__all__ = ["Memory", "RowPlan", "Value", "plan_rows", "shared"]


class Value:
    """One entry between two transforms: its shape, its dtype and its memory.

    A transform that keeps the shape and dtype of an entry overwrites its value; one that changes them gets a new value.
    The last value of an entry is in the caller's rows, earlier ones are in memory of the chain.

    Attributes:
        shape, dtype: of one row.
        in_root: whether a reset writes it too; rewards are only in ``next``.
        same_as: the value whose memory it shares, if only a cast separates the two: numpy casts as it writes.
        row_key: its key in the caller's rows, or None.
        is_read: whether a transform reads it, so that it needs memory of its own.
    """

    __slots__ = ("dtype", "in_root", "is_read", "row_key", "same_as", "shape")

    def __init__(self, shape: tuple[int, ...], dtype: np.dtype[Any], in_root: bool) -> None:
        self.shape, self.dtype, self.in_root = shape, dtype, in_root
        self.same_as: Value | None = None
        self.row_key: Key | None = None
        self.is_read = False

    @property
    def place(self) -> Value:
        """The value whose memory this one uses: itself, or the one that it shares memory with."""
        return self if self.same_as is None else self.same_as.place


class Memory:
    """The arrays of the values of a plan: the caller's rows, or new memory for values that the caller does not see.

    Args:
        rows: the caller's rows.
        arrays: arrays of values that are in other memory, by value and whether they belong to the root.
    """

    def __init__(self, rows: Rows, arrays: dict[tuple[Value, bool], Array] | None = None) -> None:
        self.rows = rows
        self._arrays = dict(arrays or {})

    def next(self, value: Value) -> Array:
        """Return the array ``[n, *shape]`` of a value in ``next``."""
        return self._array(value.place, False)

    def root(self, value: Value) -> Array:
        """Return the array ``[n, *shape]`` of a value in the root."""
        return self._array(value.place, True)

    def _array(self, place: Value, root: bool) -> Array:
        array = self._arrays.get((place, root))
        if array is None and place.row_key is not None:
            array = (self.rows.root if root else self.rows.next)[place.row_key]
        if array is None:
            array = self._arrays[place, root] = np.zeros((self.rows.n, *place.shape), place.dtype)
        return array


class RowPlan:
    """A chain of transforms behind a row writer.

    Args:
        base: layout of the rows before the first transform.
        chain: the transforms, in order.
        specs: the specs before the first one.
        casts_in_write: whether the base can write into memory of another dtype, so that numpy casts its values.

    Attributes:
        layout: layout of the caller's rows.
        parts, hooks, before: the transforms, the hooks of each of them and the specs before each of them.
        after: the specs behind all of them.
        values: the values by key, before the first transform and behind each one.
        repeating: positions of the transforms that may step several times.
    """

    def __init__(self, base: RowLayout, chain: list[Link], specs: EnvSpecs, *, casts_in_write: bool = True) -> None:
        self._casts_in_write = casts_in_write
        parts = self.parts = [link.part for link in chain]
        hooks = self.hooks = [link.hooks for link in chain]
        before = self.before = [link.before for link in chain]
        after = self.after = chain[-1].after if chain else specs
        self.base_root_inputs, self._base_reads_root = base.root_inputs, base.reads_root
        self.repeating = [i for i, hook in enumerate(hooks) if hook.rows is not None and hook.rows.steps_again]
        #: For each transform, the pairs of its inverse that are actions. Rows have no states that are not observed.
        self.action_pairs = [
            [pair for pair in hook.inverse_pairs or () if specs.action.get(pair[1], None) is not None]
            for hook, specs in zip(hooks, before, strict=True)
        ]
        current = {key: Value(shape, dtype, True) for key, shape, dtype in base.observations}
        current |= {key: Value(shape, dtype, False) for key, shape, dtype in base.rewards}
        flag = np.dtype(bool)
        current |= {name: Value(shape, flag, True) for name, shape in base.done_shapes.items()}
        self.values = [current]
        for link in chain:
            current = self._behind(link.hooks, current, link.after)
            self.values.append(current)
        for key, value in current.items():
            value.place.row_key = key
        self._over = set(self.written_over)
        #: The entries of the root that the base, and then each transform, reads.
        reads = [base.root_inputs, *(hook.root_inputs for hook in hooks)]
        self._reads = [(i, key, self._input_key(i, key)) for i, keys in enumerate(reads) for key in keys]
        copied_to_next = [self._input_key(0, key) for key in base.copied_to_next]
        copied_to_next += [key for hook in hooks if hook.rows is not None for key in hook.passed_through]
        self.reads_root = base.reads_root or any(hook.reads_all for hook in hooks)
        self.layout = RowLayout(
            observation=after.observation,
            reward=after.reward,
            done=after.done,
            action=after.action,
            root_inputs=tuple(dict.fromkeys(key for *_, key in self._reads if key is not None)),
            copied_to_next=tuple(dict.fromkeys(key for key in copied_to_next if key is not None)),
            reads_root=self.reads_root,
            flags_every_step=base.flags_every_step
            or any(part.writes_done and _sets_flags_alone(hook) for part, hook in zip(parts, hooks, strict=True)),
            device=after.device,
        )

    def _input_key(self, i: int, key: Key) -> Key | None:
        """Return the caller's key of an entry that is read behind ``i`` transforms; None if a later one changes it."""
        value = self.values[i].get(key)
        kept = value is not None and value.same_as is None and (i > 0 or value not in self._over)
        return value.row_key if kept and value is not None else None

    def _behind(self, hook: Hooks, before: dict[Key, Value], specs: EnvSpecs) -> dict[Key, Value]:
        """Return the values behind a transform."""
        rows = hook.rows
        casts = set(rows.casts) if rows is not None else set()
        kept = rows.kept if rows is not None else {}
        #: The private entry of each kept entry is its value before the transform.
        memories = {memory: before[key] for key, memory in kept.items()}
        read = set(before) if rows is None and not hook.does_nothing else set(rows.reads) if rows is not None else set()
        if hook.pairs is not None:
            read = {key for key, _ in hook.pairs}
            read |= {key for _, key in hook.pairs}
        for key in read:
            if key in before:
                before[key].is_read = True
        behind: dict[Key, Value] = {}
        for spec, in_root in ((specs.observation, True), (specs.reward, False), (specs.done, True)):
            for field in Layout.of(spec, ()).fields:
                dtype = field.numpy_dtype
                assert dtype is not None
                old = memories.get(field.key, before.get(field.key))
                if (
                    field.key not in kept
                    and old is not None
                    and old.shape == field.shape
                    and old.dtype == dtype
                    and old.in_root >= in_root
                ):
                    behind[field.key] = old
                    continue
                value = Value(field.shape, dtype, in_root)
                if (
                    self._casts_in_write
                    and field.key in casts
                    and old is not None
                    and not old.is_read
                    and old.same_as is None
                ):
                    old.same_as = value
                behind.setdefault(field.key, value)
        return behind

    @property
    def copies_to_next(self) -> bool:
        """Whether the chain leaves entries that steps copy from the root to ``next`` as the caller passed them."""
        keys = set(self.layout.copied_to_next)
        return not keys or all(
            hook.does_nothing
            or hook.only_inverts
            or (
                hook.rows is not None
                and keys.isdisjoint((*hook.rows.writes, *hook.rows.casts))
                and keys.intersection(hook.rows.root_inputs) <= set(hook.passed_through)
            )
            for hook in self.hooks
        )

    @property
    def written_over(self) -> list[Value]:
        """The values of the base that transforms overwrite in the memory where the base writes them."""
        over: dict[Value, None] = {}
        base = {value.place: value for value in self.values[0].values()}
        for i, (part, behind) in enumerate(zip(self.parts, self.values[1:], strict=True)):
            flags = self.before[i].done.keys(include_nested=True, leaves_only=True) if part.writes_done else ()
            keys = [*self.written(i), *flags]
            over.update((base[behind[key].place], None) for key in keys if key in behind and behind[key].place in base)
        return list(over)

    def written(self, i: int) -> list[Key]:
        """Return the entries that transform ``i`` overwrites, without done entries that it may set."""
        hook = self.hooks[i]
        return [key for _, key in hook.pairs or ()] if hook.rows is None else list(hook.rows.writes)

    @property
    def reads_base_root(self) -> bool:
        """Whether a transform reads an entry of the root that the base writes."""
        base = {value.place for value in self.values[0].values()}
        return self.reads_root or any(
            key in before and before[key].place in base
            for hook, before in zip(self.hooks, self.values, strict=False)
            for key in hook.root_inputs
        )

    def root_inputs_before(self, i: int) -> list[Key]:
        """Return the entries of the root that a step with the first ``i`` transforms reads."""
        if self.reads_root_before(i):
            return [key for key, value in self.values[i].items() if value.in_root]
        of_transforms = [key for hook in self.hooks[:i] for key in hook.root_inputs]
        return [key for key in dict.fromkeys([*self.base_root_inputs, *of_transforms]) if key in self.values[i]]

    def reads_root_before(self, i: int) -> bool:
        """Whether a step with the first ``i`` transforms may read any entry of the root."""
        return self._base_reads_root or any(hook.reads_all for hook in self.hooks[:i])

    def _no_repeating_reason(self) -> str | None:
        """Say why steps of some transforms cannot be repeated on rows, or return None."""
        final = self.values[-1]
        for i in self.repeating:
            name = type(self.parts[i]).__name__
            for part, pairs in zip(self.parts[:i], self.action_pairs[:i], strict=True):
                if part.action_masks or (pairs and part.key_of_rows() is None):
                    return f"{type(part).__name__} inverts the action again in each step that {name} repeats."
            if self.reads_root_before(i):
                for key, value in self.values[i].items():
                    if value.in_root and final.get(key) is not value:
                        return f"{name} repeats steps that read {key!r}, which a later transform changes."
        return None

    def no_rows_reason(self) -> str | None:
        """Say why the chain cannot run on rows although each transform could, or return None."""
        takes_rows = [part.key_of_rows() is not None for part in self.parts]
        for i, (part, hook) in enumerate(zip(self.parts, self.hooks, strict=True)):
            behind = zip(self.hooks[i:], takes_rows[i:], strict=True)
            if hook.reads_all and takes_rows[i] and any(hooks.inverse_pairs and not rows for hooks, rows in behind):
                return f"{type(part).__name__} reads the root, which later inverses change row by row."
        for i, key, input_key in self._reads:
            if input_key is None:
                reader = type(self.parts[i - 1]).__name__ if i else "the environment"
                return f"a later transform changes {key!r}, which {reader} reads from the data."
        return self._no_repeating_reason()


def shared(plans: Sequence[RowPlan], i: int) -> bool:
    """Whether one call of the transform at a position serves the environments of these chains."""
    if len(plans) == 1:
        return True
    keys = [plan.parts[i].key_of_rows() for plan in plans]
    return keys[0] is not None and all(key == keys[0] for key in keys)


def plan_rows(
    base: RowLayout, chain: Iterable[Link], specs: EnvSpecs, *, of_batch: bool = False, casts_in_write: bool = True
) -> tuple[RowPlan | None, str | None]:
    """Plan a chain around one environment, or around a batch, where each transform runs once for all rows.

    Args:
        base: layout of one row before the transforms.
        chain: the transforms.
        specs: specs of one row before them.
        of_batch: whether it is around a batch; the transforms need ``RowHooks`` then.
        casts_in_write: see :class:`RowPlan`.

    Returns:
        The plan and None; or None and the reason why the chain cannot run on rows.
    """
    taken: list[Link] = []
    for link in chain:
        hooks = link.hooks
        if of_batch and (hooks.rows is None or hooks.passed_through) and not hooks.does_nothing:
            return None, f"{type(link.part).__name__} is not written for rows of a batch."
        reason = _no_rows_reason(link)
        if reason is not None:
            return None, reason
        taken.append(link)
    plan = RowPlan(base, taken, specs, casts_in_write=casts_in_write)
    reason = plan.no_rows_reason()
    return (plan, None) if reason is None else (None, reason)


def _no_rows_reason(link: Link) -> str | None:
    """Say why a transform cannot run on rows of arrays, or return None."""
    part, hook, specs, after = link.part, link.hooks, link.before, link.after
    name = type(part).__name__
    if hook.no_rows_reason is not None:
        return f"{name} {hook.no_rows_reason}."
    if any(parameter.requires_grad for parameter in part.parameters()):
        return f"{name} has parameters, through which gradients may pass."
    if part.writes_step:
        return f"{name} may exclude environments from a step."
    differs = hook.rows is not None and bool(hook.rows.wrap or hook.rows.kept)
    if (hook.before_reset is not None and not differs) or hook.instead_of_reset is not None:
        return f"{name} changes the argument of reset."
    if hook.converts and not differs:
        states = set(specs.state.keys(include_nested=True, leaves_only=True))
        if hook.inverse_pairs is None or states.intersection(key for _, key in hook.inverse_pairs):
            return f"the inverse of {name} reads more than actions."
    for key in after.state.keys(include_nested=True, leaves_only=True):
        if after.observation.get(key, None) is None:
            return f"behind {name} the state {key!r} is no observation."
    if after.batch_size:
        return f"{name} gives the data a batch size."
    if not is_host(after.device):
        return f"{name} moves the data to {after.device}."
    for key, out_key in hook.pairs or ():
        if not any(spec.get(key, None) is not None for spec in (specs.observation, specs.reward, specs.done)):
            return f"{name} reads {key!r}, which its environment lacks."
        if not any(spec.get(out_key, None) is not None for spec in (after.observation, after.reward, after.done)):
            return f"{name} writes {out_key!r}, which its specs lack."
    for spec in (after.observation, after.reward, after.done, after.action):
        reason = no_storage_reason(spec)
        if reason is not None:
            return f"behind {name} {reason}"
    if not _numpy_has(after.observation, after.reward, after.action):
        return f"behind {name} an entry has a dtype that numpy lacks."
    if "done" not in after.done.keys():
        return f"behind {name} the done entries are {list(after.done.keys(include_nested=True, leaves_only=True))}."
    return None


def _sets_flags_alone(hook: Hooks) -> bool:
    """Whether a transform that writes done entries may set one of them in a row whose ``done`` it does not set."""
    return hook.rows is None or ("done" not in hook.rows.writes and not set(DONE_NAMES).isdisjoint(hook.rows.writes))


def _numpy_has(*specs: Composite) -> bool:
    return all(field.numpy_dtype is not None for spec in specs for field in Layout.of(spec, ()).fields)
