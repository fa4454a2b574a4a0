"""Rows: root and ``next`` of some environments at one step, as numpy arrays."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, MutableSequence, Sequence
from typing import Any

import numpy as np
from tensordict import TensorDict

from steppe.envs.array.row_layout import RowLayout, fields_of
from steppe.envs.data_types import Array, Flags, Key
from steppe.errors import NotSupported, SpecError
from steppe.storage import clear_rows

__all__ = ["Arrays", "Ended", "OutRow", "Progress", "Rows"]

#: Values by key, one for each row: ``[n, *shape]``.
Arrays = Mapping[Key, Array]

#: The rows whose episode ended in a step: row, terminated, truncated.
Ended = list[tuple[int, bool, bool]]


class Rows:
    """Root and ``next`` of n rows at one step.

    Args:
        layout: the entries of a row.
        root: arrays ``[n, *shape]`` of the root: observations, done entries, and actions if a step reads them.
        following: arrays ``[n, *shape]`` of ``next``: observations, rewards and done entries.

    Attributes:
        n: the number of rows.
        root, next: the arguments.
        done: pairs of the root and ``next`` arrays of each done entry, by name.
        done_dirty: whether a done entry of ``next`` may be True, so that the next step has to write all of them. The
            writer that is bound to these rows owns it: its steps read it and clear it, through ``write_done`` or
            ``write_flags``. Code behind that writer that sets a done entry sets it too. Clearing three arrays in each
            step instead would take 0.5 us, of a step that takes about 10.
        root_data: during a step of a TensorDict, that TensorDict, for transforms that read entries of the root for
            which rows have no place; None otherwise. RowSteps owns it. As an argument of ``BoundWriter.step`` it would
            be passed through every writer of every library in each step, for the few transforms that read it.
    """

    def __init__(self, layout: RowLayout, root: Arrays, following: Arrays) -> None:
        self.layout = layout
        self.root, self.next = root, following
        self.n = len(next(iter(following.values())))
        self.done = {name: (root[name], following[name]) for name in layout.done_keys}
        self._root_done = [flags for flags, _ in self.done.values()]
        self.root_data: TensorDict | None = None
        self.done_dirty = True

    @classmethod
    def new(cls, layout: RowLayout, n: int = 1) -> Rows:
        """Return rows in new memory, filled with zeros.

        Raises:
            NotSupported: the layout has loose entries, for which only a batch has a place.
        """
        if layout.loose:
            raise NotSupported(f"The entries {list(layout.loose)} have no fixed layout, so they have no place in rows.")
        flags = [(name, shape, np.dtype(bool)) for name, shape in layout.done_shapes.items()]
        inputs = fields_of(layout.actions.spec) if layout.reads_root else []
        root = {key: np.zeros((n, *shape), dtype) for key, shape, dtype in [*layout.observations, *flags, *inputs]}
        following = {key: np.zeros((n, *shape), dtype) for key, shape, dtype in [*layout.written, *flags]}
        return cls(layout, root, following)

    def root_row(self, row: int, keys: list[Key]) -> OutRow:
        """Return views ``[*shape]`` of some entries of the root of one row; scalars can be written through them too."""
        return OutRow({key: self.root[key][row, ...] for key in keys})

    def next_row(self, row: int, keys: list[Key]) -> OutRow:
        """Return views of some entries of ``next`` of one row."""
        return OutRow({key: self.next[key][row, ...] for key in keys})

    def write_done(self, ended: Ended, at: Sequence[int] | None = None) -> None:
        """Write the done entries of ``next``.

        Args:
            ended: the rows that ended.
            at: the rows that were stepped, all by default. Other rows keep their values.
        """
        if self.done_dirty:
            for _, following in self.done.values():
                if at is None:
                    following.fill(False)
                else:
                    following[at] = False
            self.done_dirty = at is not None
        if ended:
            self.done_dirty = True
            for name, (_, following) in self.done.items():
                for row, terminated, truncated in ended:
                    following[row] = terminated if name == "terminated" else truncated if name == "truncated" else True

    def write_flags(
        self, done: Flags, terminated: Flags, truncated: Flags, at: np.ndarray[Any, np.dtype[np.int64]] | None = None
    ) -> Ended:
        """Write the done entries of ``next`` from arrays of flags ``[n]``, and return the rows that ended.

        For writers whose library steps all rows in one call.

        Args:
            done: whether the episode of each row has ended.
            terminated: whether it ended in a terminal state.
            truncated: whether it was cut off.
            at: the rows that were stepped, all by default. Other rows keep their values.
        """
        rows = done.nonzero()[0] if at is None else at[done[at]]
        if len(rows) or self.done_dirty:
            flags = {"done": done, "terminated": terminated, "truncated": truncated}
            some: Any = slice(None) if at is None else at
            for name, (_, following) in self.done.items():
                following[some] = flags[name][some, None]
            self.done_dirty = bool(len(rows)) or at is not None
        if not len(rows):
            return []
        return list(zip(rows.tolist(), terminated[rows].tolist(), truncated[rows].tolist(), strict=True))

    def begin(self, at: Sequence[int]) -> None:
        """Set the done entries of the root to False in rows that were reset."""
        for flags in self._root_done:
            clear_rows(flags, at)


class OutRow(dict[Key, Array]):
    """The ``out`` of ``reset_into`` and ``step_into``: views of one row by key, to write into.

    Replacing a view by another array is an error, because that array would never be read.
    """

    def __setitem__(self, key: Key, value: Any) -> None:
        if key not in self:
            self[key]  # raises the error that lists the keys
        if value is not self[key]:  # out[key] += value assigns the array that it has read
            raise SpecError(
                f"out[{key!r}] = value replaces the row by another array, which is never read. Write into "
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
    """Note which row is being stepped, for error messages, also of the parent process after a worker has died.

    Args:
        words: where the row is noted: 0 for none, otherwise the number of the row in the batch plus one.
        at: index into ``words``.
        first_row: number of the first row in the batch.
    """

    __slots__ = ("at", "base", "words")

    def __init__(self, words: MutableSequence[int] | None = None, at: int = 0, first_row: int = 0) -> None:
        self.words: MutableSequence[int] = [0] if words is None else words
        self.at = at
        self.base = first_row + 1

    @property
    def row(self) -> int | None:
        """The row that is being stepped, or was last; None while a transform works on all rows."""
        number = self.words[self.at]
        return number - 1 if number else None
