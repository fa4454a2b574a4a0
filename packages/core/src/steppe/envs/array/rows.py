"""Rows: root and next of some environments at one step, as numpy views."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, MutableSequence, Sequence
from typing import Any

import numpy as np
from tensordict import TensorDict

from steppe.envs.array.row_layout import Key, RowLayout, fields_of
from steppe.errors import SpecError

__all__ = ["Arrays", "Ended", "OutRow", "Progress", "Rows"]

#: Values by key, one for each row: ``[n, *shape]``.
Arrays = Mapping[Key, "np.ndarray[Any, Any]"]

#: What has ended in a step: row, terminated, truncated. Rows that go on are not listed.
Ended = list[tuple[int, bool, bool]]

#: Up to this many rows are written faster in a Python loop than with one index array.
_ROW_LOOP_LIMIT = 8


class Rows:
    """Root and ``next`` of n rows at one step.

    Args:
        layout: what a row holds.
        root: arrays ``[n, *shape]`` of the root: observations, done entries and carried ones.
        following: arrays ``[n, *shape]`` of ``next``: observations, rewards and done entries.

    Attributes:
        n: how many rows there are.
        root, next: the arguments.
        done: pairs of the root and ``next`` arrays of each done entry, by name.
    """

    def __init__(self, layout: RowLayout, root: Arrays, following: Arrays) -> None:
        self.layout = layout
        self.root, self.next = root, following
        self.n = len(next(iter(following.values())))
        self.done = {name: (root[name], following[name]) for name in layout.done_keys}
        #: The data that a single step was called with, where its caller has one: whoever reads the root may look there.
        self.given: TensorDict | None = None
        #: Whether some done entry of ``next`` may be True.
        self.flagged = True

    @classmethod
    def new(cls, layout: RowLayout, n: int = 1) -> Rows:
        """Rows in memory of their own; it begins as zeros."""
        flags = [(name, shape, np.dtype(bool)) for name, shape in layout.done_shapes.items()]
        inputs = fields_of(layout.actions.spec) if layout.reads_root else []
        root = {key: np.zeros((n, *shape), dtype) for key, shape, dtype in [*layout.observations, *flags, *inputs]}
        following = {key: np.zeros((n, *shape), dtype) for key, shape, dtype in [*layout.written, *flags]}
        return cls(layout, root, following)

    def root_row(self, row: int, keys: list[Key]) -> OutRow:
        """Views of some entries of the root of one row, ``[*shape]``; scalars too can be written through them."""
        return OutRow({key: self.root[key][row, ...] for key in keys})

    def next_row(self, row: int, keys: list[Key]) -> OutRow:
        """The same of ``next``."""
        return OutRow({key: self.next[key][row, ...] for key in keys})

    def write_done(self, ended: Ended, at: Sequence[int] | None = None) -> None:
        """Write the done entries of ``next``.

        Args:
            ended: the rows that ended.
            at: the rows that were stepped; all of them by default. Others are left as they are.
        """
        if self.flagged:
            for _, following in self.done.values():
                if at is None:
                    following.fill(False)
                else:
                    following[at] = False
            self.flagged = at is not None
        if ended:
            self.flagged = True
            for name, (_, following) in self.done.items():
                for row, terminated, truncated in ended:
                    following[row] = terminated if name == "terminated" else truncated if name == "truncated" else True

    def begin(self, at: Sequence[int]) -> None:
        """Write the done entries of the root of rows that were reset: False."""
        for root, _ in self.done.values():
            if len(at) > _ROW_LOOP_LIMIT:
                root[list(at)] = False
                continue
            for row in at:
                root[row] = False


class OutRow(dict[Key, "np.ndarray[Any, Any]"]):
    """The ``out`` of ``reset_into`` and ``step_into``: views of one row by key, to be written into.

    Putting another array in the place of a view is an error, because nobody would read it.
    """

    def __setitem__(self, key: Key, value: Any) -> None:
        if key not in self:
            self[key]  # says which keys there are
        if value is not self[key]:  # out[key] += value puts back what it took
            raise SpecError(
                f"out[{key!r}] = value puts another array in the place of the row, where nobody reads it. Write into "
                f"the row: out[{key!r}][...] = value, or write_row(out, {key!r}, value)."
            )

    def update(self, *args: Any, **kwargs: Any) -> None:
        for key, value in dict(*args, **kwargs).items():
            self[key] = value

    def __missing__(self, key: Key) -> Any:
        close = difflib.get_close_matches(str(key), map(str, self), 1)
        hint = f" Did you mean {close[0]!r}?" if close else " Declare it in the specs."
        if key == "reward" and not close:
            hint = " A reset has no reward."
        elif key in ("done", "terminated", "truncated"):
            hint = " How an episode ends is returned: return terminated, truncated."
        raise SpecError(f"There is no row {key!r} to write into: out has {sorted(map(str, self))}.{hint}")


class Progress:
    """Says which row is at work, for whoever has to tell it: the caller, or the parent of a process that is gone.

    Args:
        words: where it is written: 0 for none, the number of the row in the batch plus one otherwise.
        at: index in ``words``.
        first_row: number of the first row.
    """

    __slots__ = ("at", "base", "words")

    def __init__(self, words: MutableSequence[int] | None = None, at: int = 0, first_row: int = 0) -> None:
        self.words: MutableSequence[int] = [0] if words is None else words
        self.at = at
        self.base = first_row + 1

    @property
    def row(self) -> int | None:
        """The row that is, or was last, at work; None where a transform works on all of them."""
        number = self.words[self.at]
        return number - 1 if number else None
