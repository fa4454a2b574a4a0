"""What a transform knows of the environment before it, and what it does at each step: both worked out once."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

import torch
from tensordict import TensorDict, TensorDictBase

from steppe.envs import DoneGroup, done_groups
from steppe.specs import INPUT_KINDS, OUTPUT_KINDS, SPEC_KINDS, Composite
from steppe.storage import build_td, copy_names, entries
from steppe.transforms.transform_keys import names_of

__all__ = [
    "EnvSpecs",
    "Hooks",
    "RowArrays",
    "RowHooks",
    "asking",
    "at_level",
    "pair_hook",
    "read",
    "set_beside",
    "shallow_copy",
    "write",
]

StepHook = Callable[[TensorDictBase, TensorDictBase], TensorDictBase]
ResetHook = Callable[[TensorDictBase | None, TensorDictBase], TensorDictBase]
InverseHook = Callable[[TensorDictBase], TensorDictBase]


@dataclass(frozen=True)
class EnvSpecs:
    """The specs of an environment, or of one with the first few of its transforms.

    Attributes:
        observation, reward, done, action, state: Composites of the environment's batch size.
        batch_size: leading dimensions of all data.
        device: where the data is, or None.
    """

    observation: Composite
    reward: Composite
    done: Composite
    action: Composite
    state: Composite
    batch_size: torch.Size
    device: torch.device | None

    @classmethod
    def of(cls, env: Any) -> EnvSpecs:
        """Read the specs of an environment."""
        return cls(
            **{kind: getattr(env, f"full_{kind}_spec") for kind in SPEC_KINDS},
            batch_size=env.batch_size,
            device=env.device,
        )

    @classmethod
    def of_row(cls, env: Any) -> EnvSpecs | None:
        """Read the specs of one row of a batch ``(n,)``; None where it is more than rows that end on their own."""
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
        """The levels that end by themselves, the root first."""
        return done_groups(self.done)

    def copy(self) -> EnvSpecs:
        """The same with unlocked copies of all specs, to change in place."""
        return replace(self, **{kind: getattr(self, kind).clone() for kind in SPEC_KINDS})

    def changed(self, **specs: Any) -> EnvSpecs:
        """The same with other values for some attributes."""
        return replace(self, **specs)


class RowArrays(dict[Any, Any]):
    """Arrays ``[n, *shape]`` of rows by key, as they are behind a transform.

    Attributes:
        before: what the same keys were before the transform: another array where it changes shape or dtype.
    """

    def __init__(self, behind: dict[Any, Any], before: dict[Any, Any]) -> None:
        super().__init__({**before, **behind})
        self.before = before


@dataclass
class RowHooks:
    """What a transform does to blocks of rows, as numpy arrays: the same as its hooks on TensorDicts, much faster.

    For transforms of which an environment takes a step in a few microseconds. Whatever is remembered from step to step
    is in the rows: in ``next`` after a step, in the root before the following one.

    Attributes:
        bind: given the arrays ``[n, *shape]`` of the root and of ``next`` by key, what the transform adds included,
            returns two functions or None each. The first writes its entries of ``next`` after a step, done entries
            too, and returns whether it has ended a row. The second is given the rows that were reset, and writes its
            entries of the root. The arrays are the same at each step. Both are given as :class:`RowArrays`: an entry
            of another shape, which the transform replaces, is in its ``before``.
        carried: entries of the root that the first function reads. They are states of the transform.
        handed_on: those of them that it does no more than copy to ``next``: a caller of a step may have written others
            there, which then hold.
        reads: entries of ``next`` that it reads.
        writes: entries of ``next`` that were there before, and that it writes over.
        casts: entries whose dtype the transform changes: numpy casts them when they are written.
        before_step: called before the environment steps. ``inverse`` and ``before_reset`` of the transform then do no
            more than notice the call too, and change nothing.
        before_reset: called before the environment resets rows, likewise.
        alone: whether they are for one environment: not for the rows of a batch that the transform is behind.
        by_torch: whether the functions compute with torch, and are to be called as if nobody asked for gradients.
        by_blocks: whether what they do to a row depends on that row alone, so that a chain may go through some rows
            after the others: several ``bind`` then, each for a few rows.
        repeats: how often the environment, with the transforms before this one, takes the same action in one step, >=
            1. A row whose episode ends is left alone from then on, and all rewards are added up: ``next`` holds their
            sums and the last of everything else. What ``bind`` returns, and the transforms behind, follow once. None
            for a transform that takes no steps of its own.
    """

    bind: Callable[[Any, Any], tuple[Callable[[], bool] | None, Callable[[Any], None] | None]] | None = None
    carried: Iterable[Any] = ()
    handed_on: Iterable[Any] = ()
    reads: Iterable[Any] = ()
    writes: Iterable[Any] = ()
    casts: Iterable[Any] = ()
    before_step: Callable[[], object] | None = None
    before_reset: Callable[[], object] | None = None
    alone: bool = False
    by_torch: bool = False
    by_blocks: bool = False
    repeats: int | None = None

    @property
    def notices_calls(self) -> bool:
        """Whether it is told of steps and resets before they happen."""
        return self.before_step is not None or self.before_reset is not None


@dataclass
class Hooks:
    """What a transform does in one environment; None where it does nothing.

    Attributes:
        step: given the root and ``next``, writes into ``next`` and returns it.
        reset: given what reset was called with (or None) and the fresh data, writes into the fresh data and returns it.
            Rows that are not reset are taken care of afterwards.
        inverse: given a copy of what step was called with, makes it what the environment before expects.
        before_reset: the same for reset, which may be called with None.
        instead_of_reset: given what reset was called with, returns the fresh data in place of a reset of the
            environment before, or None to reset it.
        reads_root: whether ``step`` looks at the root it is given.
        pairs: keys to read and to write, where ``step`` and ``reset`` do nothing but ``_apply_transform`` on these.
        inverse_pairs: the same for ``inverse`` and ``_inv_apply_transform``.
        inverse_of_steps: ``_inv_apply_transform`` of actions ``[k, *shape]`` that one environment takes one after the
            other, for what is random or has no ``shared_key``; None calls it for each of them.
        asks: given a copy of ``next``, returns what ``acts`` needs to know, or None where there is nothing to do in
            this step. ``step`` then is :func:`asking` of both. On rows a TensorDict is made for the question alone.
        acts: given the root, ``next``, and what ``asks`` has returned, writes into ``next`` and returns it.
        ends_whole: whether ``step`` writes ``done`` wherever it writes another done entry.
        passed_through: keys of states that ``step`` copies from the root to ``next``, unless a policy has written them
            there.
        rows: the same on blocks of rows; None where TensorDicts are made of the rows.
        needs_tensordicts: why it does not run on rows at all, as what is said of it: ``"pins memory"``.
    """

    step: StepHook | None = None
    reset: ResetHook | None = None
    inverse: InverseHook | None = None
    before_reset: Callable[[TensorDictBase | None], TensorDictBase | None] | None = None
    instead_of_reset: Callable[[TensorDictBase | None], TensorDictBase | None] | None = None
    reads_root: bool = True
    pairs: list[tuple[Any, Any]] | None = None
    inverse_pairs: list[tuple[Any, Any]] | None = None
    inverse_of_steps: Callable[[torch.Tensor], torch.Tensor] | None = None
    asks: Callable[[TensorDictBase], Any] | None = None
    acts: Callable[[TensorDictBase, TensorDictBase, Any], TensorDictBase] | None = None
    ends_whole: bool = False
    passed_through: Iterable[Any] = ()
    rows: RowHooks | None = None
    needs_tensordicts: str | None = None

    @property
    def reads_all(self) -> bool:
        """Whether a step on rows may read any entry of the root."""
        return self.rows is None and self.step is not None and self.pairs is None and self.reads_root

    @property
    def converts(self) -> bool:
        """Whether it changes what a step is given on the way to rows."""
        return self.inverse is not None and not (self.rows is not None and self.rows.notices_calls)

    @property
    def only_inverts(self) -> bool:
        """Whether all that it does is about single entries of what a step is given."""
        others = (self.step, self.reset, self.before_reset, self.instead_of_reset)
        return self.inverse_pairs is not None and not any(others)

    @property
    def does_nothing(self) -> bool:
        """Whether there is nothing to do at all."""
        return not any((self.step, self.reset, self.inverse, self.before_reset, self.instead_of_reset))


def asking(
    asks: Callable[[TensorDictBase], Any], acts: Callable[[TensorDictBase, TensorDictBase, Any], TensorDictBase]
) -> StepHook:
    """Return the ``step`` of a transform that acts in some steps alone; see :class:`Hooks`."""

    def step(td: TensorDictBase, following: TensorDictBase) -> TensorDictBase:
        found = asks(shallow_copy(following))
        return following if found is None else acts(td, following, found)

    return step


def pair_hook(
    pairs: list[tuple[Any, Any]],
    apply: Callable[[Any], Any],
    missing: Callable[[Any, TensorDictBase], Any] | None,
) -> Callable[[TensorDictBase], TensorDictBase]:
    """Return a function that writes ``apply(td[a])`` to ``td[b]`` for each pair ``(a, b)``.

    Args:
        pairs: keys to read and to write.
        apply: what to do with a value.
        missing: called with the key and the data where there is no entry; None passes over it.
    """
    flat = all(type(a) is str and type(b) is str for a, b in pairs)

    def general(data: TensorDictBase) -> TensorDictBase:
        for a, b in pairs:
            value = data.get(a, None)
            if value is not None:
                data.set(b, apply(value))
            elif missing is not None:
                missing(a, data)
        return data

    if not flat:
        return general

    def on_plain(data: TensorDictBase) -> TensorDictBase:
        if type(data) is not TensorDict or data.is_locked:
            return general(data)
        level = entries(data)
        for a, b in pairs:
            value = level.get(a)
            if value is None:
                if missing is not None:
                    missing(a, data)
                continue
            result = apply(value)
            if type(result) is torch.Tensor:
                level[b] = result
            else:
                data.set(b, result)
        return data

    return on_plain


def at_level(data: TensorDictBase, prefix: tuple[str, ...]) -> Any:
    """The data at a level, itself for the root; None where there is none."""
    return data.get(prefix, None) if prefix else data


def read(level: TensorDictBase, name: str) -> Any:
    """The entry of a level at a name, or None."""
    return entries(level).get(name) if type(level) is TensorDict else level.get(name, None)


def write(level: TensorDictBase, name: str, value: Any) -> None:
    """Put an entry that is known to fit at a level."""
    if type(level) is TensorDict and not level.is_locked:
        entries(level)[name] = value
    else:
        level.set(name, value)


def shallow_copy(tensordict: TensorDictBase) -> TensorDictBase:
    """A copy that shares its tensors, to be written into."""
    if type(tensordict) is not TensorDict:
        return tensordict.copy()
    level = {
        name: value if isinstance(value, torch.Tensor) else value.copy() for name, value in entries(tensordict).items()
    }
    return copy_names(tensordict, build_td(level, tensordict.batch_size, tensordict.device))


def set_beside(spec: Composite, key: Any, leaf: Any, like: Composite) -> None:
    """Put a leaf into a spec, in place; levels that it lacks are made with the shapes that they have in ``like``."""
    names = names_of(key)
    for depth in range(1, len(names)):
        above = names[:depth]
        model = like.get(above, None)
        if spec.get(above, None) is None and model is not None:
            spec.set(above, Composite(shape=model.shape, device=model.device))
    spec.set(key, leaf)
