"""Loose entries of a batch: text and tensors of varying size, which have no place in its storage.

Each side keeps the value of every row, and only values that change are sent. Most texts stay the same for an episode,
so that a step sends nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

import numpy as np
import torch
from tensordict import (
    LazyStackedTensorDict,
    NonTensorData,
    NonTensorStack,
    TensorDict,
    TensorDictBase,
    is_tensor_collection,
)

from steppe.envs import EnvBase
from steppe.specs import Spec
from steppe.storage import entries, split_loose

__all__ = ["Key", "LooseEntries", "LooseInputs", "LooseReports", "LooseRows"]

#: The key of an entry: a name, or a tuple of names for a nested entry.
Key: TypeAlias = "str | tuple[str, ...]"

#: Values of inputs of some rows that the caller has changed, by row and key.
LooseInputs: TypeAlias = dict[int, dict[Key, object]]
#: New values of some rows: for each row, the values of ``next`` and of the root, by key.
LooseReports: TypeAlias = dict[int, tuple[dict[Key, object], dict[Key, object]]]

_NEXT, _ROOT = 0, 1
# Values of these types are compared, and not sent again if they are equal. Others may have been changed in place.
_COMPARED = (str, int, float, bool, bytes)


class LooseRows:
    """The loose entries of the environments of one process.

    Args:
        env: one of them; their specs have the same keys.
        first_row: the row of the first environment.
        changed: a flag for each row, set when the row has a value that the caller does not know.

    Attributes:
        root_keys, next_keys: the entries that a reset and a step write.
        input_keys: the entries that a step of an environment on TensorDicts may read.
        values: the values at the root, by key and row of the batch.
        reports: the values that the caller does not know yet, by row of the batch.
    """

    def __init__(self, env: EnvBase, first_row: int, changed: np.ndarray[Any, np.dtype[np.bool_]]) -> None:
        kinds = ("observation", "reward", "state", "action")
        specs = {kind: split_loose(env._full_spec(kind))[1] for kind in kinds}
        self.root_keys = list(specs["observation"])
        self.next_keys = list(dict.fromkeys([*specs["observation"], *specs["reward"]]))
        self.input_keys = list(dict.fromkeys([*specs["observation"], *specs["state"], *specs["action"]]))
        self._first_row, self._changed = first_row, changed
        keys = dict.fromkeys([*self.next_keys, *self.input_keys])
        self.values: dict[Key, dict[int, object]] = {key: {} for key in keys}
        self.reports: LooseReports = {}

    def column(self, key: Key, row: int, *, root: bool) -> Column:
        """Return the target of a row writer for an entry, of rows of the batch from ``row`` on."""
        return Column(self, _ROOT if root else _NEXT, key, row)

    def write(self, part: int, key: Key, row: int, value: object) -> None:
        """Note the value that an environment has written.

        Args:
            part: 0 for a value of ``next``, 1 for one of the root.
            key: its key.
            row: the row of the batch.
            value: the value.
        """
        if isinstance(value, NonTensorData) and not value.batch_size:
            value = value.data
        elif isinstance(value, torch.Tensor):
            value = value.detach().clone()  # the environment may change its own
        column = self.values[key]
        if row in column and _is_same(value, column[row]):
            return
        column[row] = value
        self.reports.setdefault(row, ({}, {}))[part][key] = value
        self._changed[row - self._first_row] = True

    def write_data(self, data: TensorDictBase, row: int, *, root: bool) -> Any:
        """Note the loose entries of a TensorDict; returns the key of one that is missing, or None."""
        for key in self.root_keys if root else self.next_keys:
            value = data.get(key, None)
            if value is None:
                return key
            self.write(_ROOT if root else _NEXT, key, row, value)
        return None

    def read(self, row: int, td: TensorDictBase) -> None:
        """Put the loose entries of the root into a TensorDict of this row."""
        for key in self.input_keys:
            if row in self.values[key]:
                td.set(key, _as_entry(self.values[key][row]))

    def begin(self) -> None:
        """Prepare for a step: reports that were never fetched become the values that it begins with."""
        for following, root in self.reports.values():
            following.update(root)
            root.clear()

    def take(self) -> LooseReports:
        """Return the reports by row of the batch, and forget them."""
        reports, self.reports = self.reports, {}
        self._changed[...] = False
        return reports

    def set_inputs(self, inputs: LooseInputs) -> None:
        """Take over values that the caller has changed, by row of the batch."""
        for row, values in inputs.items():
            for key, value in values.items():
                self.values[key][row] = value


class Column:
    """One loose entry of rows from ``row`` on; ``column[at, ...][...] = value`` writes it for a row, as in an array."""

    __slots__ = ("_key", "_part", "_row", "_rows")

    def __init__(self, rows: LooseRows, part: int, key: Key, row: int) -> None:
        self._rows, self._part, self._key, self._row = rows, part, key, row

    def __getitem__(self, index: tuple[int, object]) -> Column:
        return Column(self._rows, self._part, self._key, self._row + index[0])

    def __setitem__(self, index: object, value: object) -> None:
        self._rows.write(self._part, self._key, self._row, value)


class LooseEntries:
    """The loose entries of a batch, as its caller knows them.

    Args:
        specs: their specs of one environment, by kind and key.
        n: how many rows the batch has.
        on_arrays: whether all environments write rows, so that a step reads nothing but the action.

    Attributes:
        next_keys: the entries that a step writes, which include those that a reset writes.
        actions, inputs: the actions, and everything that a step or reset may read.
        reset_keys: the entries that resets have changed since the operation before.
    """

    def __init__(self, specs: dict[str, dict[Key, Spec]], n: int, *, on_arrays: bool) -> None:
        self._n = n
        self._root_keys = list(specs["observation"])
        self.next_keys = list(dict.fromkeys([*specs["observation"], *specs["reward"]]))
        state = [] if on_arrays else [*specs["observation"], *specs["state"]]
        self.actions = list(specs["action"])
        self.inputs = list(dict.fromkeys([*state, *self.actions]))
        self._states = [key for key in self.inputs if key not in specs["action"]]
        every = {**specs["observation"], **specs["reward"], **specs["state"], **specs["action"]}
        self._values: dict[Key, list[object]] = {key: [_first_value(spec)] * n for key, spec in every.items()}
        self._known: dict[Key, list[bool]] = {key: [False] * n for key in self.inputs}
        self._next: dict[Key, list[object]] = {}
        self.reset_keys: dict[Key, None] = {}

    def is_complete(self, tensordict: TensorDictBase) -> bool:
        """Whether all loose entries that a reset to a state reads are in the data."""
        return all(_has(tensordict, key) for key in self._states)

    def changed_inputs(self, tensordict: TensorDictBase, rows: Sequence[int] | None = None) -> LooseInputs:
        """Return the inputs of a step that the environments do not have, by row.

        Args:
            tensordict: ``[n]`` data, or ``[k]`` data of ``rows``.
            rows: which rows; all of them by default.
        """
        changed: LooseInputs = {}
        for key in self.inputs:
            column, known = self._values[key], self._known[key]
            for i, value in enumerate(_values_of(tensordict, key)):
                row = i if rows is None else rows[i]
                if value is None or (known[row] and _is_same(value, column[row])):
                    continue
                column[row], known[row] = value, True
                changed.setdefault(row, {})[key] = value
        return changed

    def update(self, reports: LooseReports) -> None:
        """Take over what environments have reported."""
        for row, (following, _) in reports.items():
            for key, value in following.items():
                self._set(key, row, value)
        self.reset_keys = dict.fromkeys(key for _, root in reports.values() for key in root)
        # The values of a step, which a reset overwrites.
        self._next = {key: list(self._values[key]) for key in self.reset_keys}
        for row, (_, root) in reports.items():
            for key, value in root.items():
                self._set(key, row, value)

    def _set(self, key: Key, row: int, value: object) -> None:
        self._values[key][row] = value
        if key in self._known:
            self._known[key][row] = True

    def add_next(self, td: TensorDictBase, rows: Sequence[int] | None = None) -> TensorDictBase:
        """Add the entries of ``next`` to data of all rows, or of some, after :meth:`update`."""
        values = self._values
        return _with(td, {key: _some(self._next.get(key, values[key]), rows) for key in self.next_keys})

    def add_root(
        self, td: TensorDictBase, rows: Sequence[int] | None = None, keys: Iterable[Key] | None = None
    ) -> TensorDictBase:
        """Add the entries of the root, all or some, to data of all rows, or of some."""
        keys = self._root_keys if keys is None else keys
        return _with(td, {key: _some(self._values[key], rows) for key in keys})


def _is_same(value: object, before: object) -> bool:
    return type(value) is type(before) and isinstance(value, _COMPARED) and value == before


def _some(column: list[object], rows: Sequence[int] | None) -> list[object]:
    return column if rows is None else [column[row] for row in rows]


def _first_value(spec: Spec) -> object:
    """Return what stands for the value of a row that was never reset."""
    value = spec.zero()
    return value.data if isinstance(value, NonTensorData) and not value.batch_size else value


def _as_entry(value: object) -> Any:
    return value if isinstance(value, torch.Tensor) or is_tensor_collection(value) else NonTensorData(value)


def _has(tensordict: TensorDictBase, key: Key) -> bool:
    try:
        return tensordict.get(key, None) is not None
    except RuntimeError:  # a ragged entry: get() cannot stack it, but it exists
        return True


def _values_of(tensordict: TensorDictBase, key: Key) -> list[Any]:
    """Return one entry of each row, text as it is; an empty list if the data does not have it."""
    if isinstance(tensordict, LazyStackedTensorDict):
        rows = [row.get(key, None) for row in tensordict.unbind(0)]
    else:
        entry: Any = tensordict.get(key, None)
        rows = [] if entry is None else list(entry.unbind(0))
    values = [row.data if isinstance(row, NonTensorData) and not row.batch_size else row for row in rows]
    return values


def _with(td: TensorDictBase, columns: dict[Key, list[object]]) -> TensorDictBase:
    """Add entries to a TensorDict; a lazy stack of its rows is returned where one differs in shape from row to row."""
    ragged: dict[Key, list[object]] = {}
    for key, column in columns.items():
        stacked = _stacked(column)
        if stacked is None:
            ragged[key] = column
        else:
            if type(td) is TensorDict and type(key) is str and td.device is None:
                entries(td)[key] = stacked
            else:
                td.set(key, stacked)
    if not ragged:
        return td
    rows = list(td.unbind(0))
    for i, row in enumerate(rows):
        for key, column in ragged.items():
            row.set(key, _as_entry(column[i]))
    return LazyStackedTensorDict.lazy_stack(rows, 0)


def _stacked(column: list[object]) -> Any:
    """Stack one entry of all rows; None where shapes differ."""
    rows: Any = column
    if all(type(value) is str for value in column):
        return NonTensorStack.from_list(rows)
    rows = [_as_entry(value) for value in column]
    try:
        return torch.stack(rows, 0)
    except (RuntimeError, ValueError):
        return None
