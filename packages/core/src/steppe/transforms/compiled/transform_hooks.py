"""Hooks: the functions of a transform that run at each step, made once from the specs of its environment."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
import torch
from tensordict import TensorDict, TensorDictBase

from steppe.envs import BoundWriter, DoneGroup, EnvBase, done_groups
from steppe.specs import INPUT_KINDS, OUTPUT_KINDS, SPEC_KINDS, Binary, Composite, Spec, Unbounded
from steppe.storage import entries, find_entry
from steppe.transforms.transform_keys import Key, names_of

if TYPE_CHECKING:
    from steppe.transforms.base import Transform

__all__ = [
    "Array",
    "Bind",
    "EnvSpecs",
    "Hooks",
    "InnerWriter",
    "Link",
    "RowArrays",
    "RowHooks",
    "pair_hook",
    "set_beside",
    "write",
]

#: An entry of rows, ``[n, *shape]``.
Array: TypeAlias = "np.ndarray[Any, Any]"

StepHook = Callable[[TensorDictBase, TensorDictBase], TensorDictBase]
ResetHook = Callable[[TensorDictBase | None, TensorDictBase], TensorDictBase]
InverseHook = Callable[[TensorDictBase], TensorDictBase]
BeforeReset = Callable[[TensorDictBase | None], TensorDictBase | None]
#: Returns whether it has ended a row.
StepOnRows = Callable[[], bool]
#: Called with the rows that were reset.
ResetOnRows = Callable[[Sequence[int]], None]


@dataclass(frozen=True)
class EnvSpecs:
    """The specs of an environment with the transforms up to some place in its chain.

    Attributes:
        observation, reward, done, action, state: Composites of the environment's batch size.
        batch_size: leading dimensions of all data.
        device: device of the data, or None.
    """

    observation: Composite
    reward: Composite
    done: Composite
    action: Composite
    state: Composite
    batch_size: torch.Size
    device: torch.device | None

    @classmethod
    def of(cls, env: EnvBase) -> EnvSpecs:
        """Read the specs of an environment."""
        kinds = {kind: getattr(env, f"full_{kind}_spec") for kind in SPEC_KINDS}
        return cls(**kinds, batch_size=env.batch_size, device=env.device)

    @classmethod
    def without_env(cls, size: torch.Size, device: torch.device | None) -> EnvSpecs:
        """Return specs with ``reward``, ``done`` and ``terminated`` at the root."""
        shape = torch.Size((*size, 1))
        flags = {name: Binary(shape=shape, dtype=torch.bool, device=device) for name in ("done", "terminated")}
        kinds: dict[str, Mapping[str, Spec]] = {"reward": {"reward": Unbounded(shape, device=device)}, "done": flags}
        specs = {kind: Composite(kinds.get(kind, {}), shape=size, device=device) for kind in SPEC_KINDS}
        return cls(**specs, batch_size=torch.Size(size), device=device)

    @classmethod
    def of_row(cls, env: EnvBase) -> EnvSpecs | None:
        """Read the specs of one row of a batch ``(n,)``; None if the rows differ or the batch has states."""
        kinds = {kind: getattr(env, f"full_{kind}_spec")[0] for kind in SPEC_KINDS}
        if any(not isinstance(spec, Composite) for spec in kinds.values()) or env.state_keys:
            return None
        return cls(**kinds, batch_size=torch.Size(()), device=env.device)

    @property
    def output(self) -> Composite:
        """``full_observation_spec``, ``full_reward_spec`` and ``full_done_spec`` in an unlocked copy."""
        return self._packed(*OUTPUT_KINDS)

    @property
    def input(self) -> Composite:
        """``full_action_spec`` and ``full_state_spec`` in an unlocked copy."""
        return self._packed(*INPUT_KINDS)

    def _packed(self, *kinds: str) -> Composite:
        return Composite({f"full_{kind}_spec": getattr(self, kind).clone() for kind in kinds}, shape=self.batch_size)

    @property
    def groups(self) -> list[DoneGroup]:
        """The levels with done entries, the root first."""
        return done_groups(self.done)

    def copy(self) -> EnvSpecs:
        """Return unlocked copies of all specs, to change in place."""
        return replace(self, **{kind: getattr(self, kind).clone() for kind in SPEC_KINDS})

    def changed(self, **attributes: Composite | torch.Size | torch.device | None) -> EnvSpecs:
        """Return the same specs, with some attributes replaced."""
        changes: dict[str, Any] = attributes
        return replace(self, **changes)


class RowArrays(dict[Key, Array]):
    """Arrays ``[n, *shape]`` of rows by key, with the values behind a transform.

    Attributes:
        before: arrays of the same keys with the values before the transform. The array of an entry is another one if
            the transform changes its shape or dtype.
    """

    def __init__(self, behind: dict[Key, Array], before: dict[Key, Array]) -> None:
        super().__init__({**before, **behind})
        self.before = before


#: Prepares the functions of a transform for the rows that it will see.
Bind: TypeAlias = Callable[[RowArrays, RowArrays], "tuple[StepOnRows | None, ResetOnRows | None]"]


class InnerWriter(NamedTuple):
    """A bound writer to wrap: it steps the environments with the transforms before one of their chains.

    Attributes:
        writer: the bound writer.
        parts: the transform of each row; a single one if it serves all rows.
        n: number of rows.
        root_inputs: arrays ``[n, *shape]`` of the root and of ``next``, for each entry of the root that the writer
            reads. Empty unless the transform declares ``steps_again``.
        following: arrays ``[n, *shape]`` of ``next`` that the writer writes, by key.
    """

    writer: BoundWriter
    parts: list[Transform]
    n: int
    root_inputs: list[tuple[Array, Array]]
    following: dict[Key, Array]


@dataclass
class RowHooks:
    """The functions of a transform for blocks of rows, in numpy: the same as its hooks on TensorDicts, but faster.

    Values that the transform keeps from step to step are in the rows: in ``next`` after a step, in the root before the
    following step.

    Attributes:
        bind: function of the :class:`RowArrays` of the root and of ``next``, which include the entries that the
            transform adds. It returns two functions, or None for either: the first runs after each step, writes entries
            of ``next`` (done entries too) and returns whether it has ended a row; the second receives the rows that
            were reset and writes entries of the root. The arrays stay the same at each step.
        root_inputs: entries of the root that the first function reads. They are states of the transform.
        reads: entries of ``next`` that it reads.
        writes: entries of ``next`` that the environment before the transform has, and that it overwrites.
        casts: entries whose dtype the transform changes. numpy casts them as they are written, without a function.
        wrap: function that returns the bound writer to step in place of the one of the environment with the transforms
            before this one, such as one that repeats its steps. The functions of ``bind`` and later transforms run
            behind it. ``Hooks.inverse`` and ``Hooks.before_reset`` must change no data then; rows do not call them.
        kept: entries whose value before the transform stays in a private entry, each with the key of that entry.
        steps_again: whether that writer may step the environment several times in one step.
    """

    bind: Bind | None = None
    root_inputs: Iterable[Key] = ()
    reads: Iterable[Key] = ()
    writes: Iterable[Key] = ()
    casts: Iterable[Key] = ()
    kept: Mapping[Key, Key] = field(default_factory=dict)
    wrap: Callable[[InnerWriter], BoundWriter] | None = None
    steps_again: bool = False


@dataclass
class Hooks:
    """The functions of a transform in one environment; None for those that do nothing.

    Attributes:
        step: function of the root and ``next`` that writes into ``next`` and returns it.
        reset: function of the argument of ``reset`` (or None) and the data of the reset; writes into that data and
            returns it. Rows that are not reset get their values back afterwards.
        inverse: function that turns a copy of the argument of ``step`` into the argument of the inner environment.
        before_reset: the same for the argument of ``reset``, which may be None.
        instead_of_reset: function of the argument of ``reset`` that returns data of a reset, so that the environment
            before is not reset; None to reset it.
        reads_root: whether ``step`` reads the root: True for any entry of it, or the keys that it reads.
        pairs: pairs of keys to read and to write, if ``step`` and ``reset`` only call ``_apply_transform`` on these.
        inverse_pairs: the same for ``inverse`` and ``_inv_apply_transform``.
        passed_through: keys of states that ``step`` copies from the root to ``next``, unless a policy has written them
            there. Around a batch, such a transform runs on TensorDicts.
        rows: the same on blocks of rows; None if rows are wrapped in TensorDicts for this transform.
        no_rows_reason: why the transform cannot run on rows, as the end of a sentence: ``"pins memory"``.
    """

    step: StepHook | None = None
    reset: ResetHook | None = None
    inverse: InverseHook | None = None
    before_reset: BeforeReset | None = None
    instead_of_reset: BeforeReset | None = None
    reads_root: bool | Iterable[Key] = True
    pairs: list[tuple[Key, Key]] | None = None
    inverse_pairs: list[tuple[Key, Key]] | None = None
    passed_through: Iterable[Key] = ()
    rows: RowHooks | None = None
    no_rows_reason: str | None = None

    @property
    def reads_all(self) -> bool:
        """Whether a step on rows may read any entry of the root."""
        return self.rows is None and self.step is not None and self.pairs is None and self.reads_root is True

    @property
    def root_inputs(self) -> list[Key]:
        """The entries of the root that a step reads; all if ``reads_all``."""
        if self.rows is not None:
            return list(self.rows.root_inputs)
        return [] if self.step is None or isinstance(self.reads_root, bool) else list(self.reads_root)

    @property
    def converts(self) -> bool:
        """Whether it changes the argument of ``step``."""
        return self.inverse is not None and not (self.rows is not None and self.rows.wrap is not None)

    @property
    def only_inverts(self) -> bool:
        """Whether it does nothing but invert single entries of the argument of ``step``."""
        others = (self.step, self.reset, self.before_reset, self.instead_of_reset)
        return self.inverse_pairs is not None and not any(others)

    @property
    def does_nothing(self) -> bool:
        """Whether all functions are None."""
        return not any((self.step, self.reset, self.inverse, self.before_reset, self.instead_of_reset))


@dataclass(frozen=True)
class Link:
    """One transform of a chain, with its hooks and the specs before and behind it."""

    part: Transform
    hooks: Hooks
    before: EnvSpecs
    after: EnvSpecs


def pair_hook(
    pairs: Sequence[tuple[Key, Key]],
    apply: Callable[[Any], Any],
    missing: Callable[[Key, TensorDictBase], object] | None,
) -> InverseHook:
    """Return a function that writes ``apply(td[a])`` to ``td[b]`` for each pair ``(a, b)``.

    Args:
        pairs: keys to read and to write.
        apply: function of a value that returns the new value.
        missing: called with the key and the data if an entry is missing; None skips missing entries.
    """

    def run(data: TensorDictBase) -> TensorDictBase:
        for a, b in pairs:
            value = find_entry(data, a)
            if value is not None:
                write(data, b, apply(value))
            elif missing is not None:
                missing(a, data)
        return data

    return run


def write(data: TensorDictBase, key: Key, value: Any) -> None:
    """Set an entry; a tensor without validation where its group exists, so its batch size and device must fit."""
    level, name = (data, key) if type(key) is str else (find_entry(data, key[:-1]), key[-1])
    if type(value) is torch.Tensor and type(level) is TensorDict and not level.is_locked:
        entries(level)[name] = value
    else:
        data.set(key, value)


def set_beside(spec: Composite, key: Key, leaf: Spec, like: Composite) -> None:
    """Set a leaf in a spec, in place; missing levels get the shapes that they have in ``like``."""
    names = names_of(key)
    for depth in range(1, len(names)):
        above = names[:depth]
        model = like.get(above, None)
        if spec.get(above, None) is None and model is not None:
            spec.set(above, Composite(shape=model.shape, device=model.device))
    spec.set(key, leaf)
