"""Data of a play as arrays: how they are kept in files, and how two of them are compared.

A record has an array ``[rows, steps, *shape]`` for each entry, named by its path: ``"next/observation"``. Entries whose
shape differs between rows or steps have an array for each: ``"next/observation @1,4"`` is that of row 1 in step 4. Text
is an array of text. ``"last/..."`` is the data that would be acted on next, ``[rows, *shape]``.
"""

from __future__ import annotations

import json
import lzma
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tensordict import LazyStackedTensorDict, TensorDictBase, is_non_tensor, is_tensor_collection

__all__ = ["Frames", "Record", "differences", "load", "record_of", "save", "values_of"]

Values = dict[str, np.ndarray]
Record = dict[str, np.ndarray]

# Numbers of a library may be off in their last digits on another processor. All others must be equal.
TOLERANCE = {"rtol": 1e-5, "atol": 1e-6}


@dataclass
class Frames:
    """The data of one row: of each step, and what would be acted on next (None where a program does not have it)."""

    steps: list[Values] = field(default_factory=list)
    last: Values | None = None


def values_of(td: TensorDictBase, *, rows: bool) -> list[Values]:
    """Copy the entries of data, for each of its rows or (``rows=False``) for the one row that it is."""
    if not rows:
        return [_flat(td)]
    try:
        together = _flat(td, plain=True)
    except TypeError:  # rows that differ, or text
        return [_flat(row) for row in td.unbind(0)]
    return [{path: value[row] for path, value in together.items()} for row in range(td.shape[0])]


def _flat(td: Any, path: str = "", *, plain: bool = False) -> Values:
    found: Values = {}
    if isinstance(td, LazyStackedTensorDict):
        if plain:
            raise TypeError
        for number, part in enumerate(td.unbind(td.stack_dim)):
            found.update(_flat(part, f"{path}[{number}]/"))
        return found
    for name in td.keys():
        value = td.get(name)
        if is_non_tensor(value):
            if plain:
                raise TypeError
            found[path + name] = _text(value.tolist())
        elif is_tensor_collection(value):
            nested = value if isinstance(value, TensorDictBase) else value.to_tensordict()
            found.update(_flat(nested, f"{path}{name}/", plain=plain))
        elif isinstance(value, torch.Tensor):
            found[path + name] = value.detach().numpy().copy()
        else:
            found[path + name] = _text(value)
    return found


def _text(value: Any) -> np.ndarray:
    if isinstance(value, list):
        return np.array([_text(one) for one in value])
    return np.array(value if isinstance(value, str) else json.dumps(value, sort_keys=True))


def record_of(frames: list[Frames]) -> Record:
    """Put the data of rows into one record."""
    record: Record = {}
    paths = dict.fromkeys(path for row in frames for values in row.steps for path in values)
    for path in paths:
        cells = {
            (row, step): values[path]
            for row, each in enumerate(frames)
            for step, values in enumerate(each.steps)
            if path in values
        }
        full = len(cells) == sum(len(row.steps) for row in frames)
        _put(record, path, cells, (len(frames), -1), full=full)
    lasts = [row.last for row in frames if row.last is not None]
    for path in dict.fromkeys(path for last in lasts for path in last):
        cells = {(row,): last[path] for row, last in enumerate(lasts) if path in last}
        _put(record, f"last/{path}", cells, (len(lasts),), full=len(cells) == len(frames))
    return record


def _put(record: Record, path: str, cells: dict[Any, np.ndarray], lead: tuple[int, ...], *, full: bool) -> None:
    kinds = {(cell.shape, cell.dtype.kind if cell.dtype.kind == "U" else cell.dtype) for cell in cells.values()}
    if full and len(kinds) == 1:
        stacked = np.stack(list(cells.values()))
        record[path] = stacked.reshape(*lead, *stacked.shape[1:])
    else:
        record.update({f"{path} @{','.join(map(str, at))}": cell for at, cell in cells.items()})


def save(path: Path, records: dict[str, Record]) -> None:
    """Write the records of an environment; the same records give the same bytes.

    A file is compressed as a whole, because records repeat each other: a line of JSON that says what is where, and the
    bytes of the arrays.
    """
    index, content = [], b""
    for name, record in sorted(records.items()):
        for key, value in sorted(record.items()):
            index.append((name, key, value.dtype.str, value.shape))
            content += value.tobytes()
    path.write_bytes(lzma.compress(json.dumps(index).encode() + b"\n" + content, preset=9))


def load(path: Path) -> dict[str, Record]:
    """Read the records of an environment, by their names."""
    header, _, content = lzma.decompress(path.read_bytes()).partition(b"\n")
    records: dict[str, Record] = {}
    begin = 0
    for name, key, dtype, shape in json.loads(header):
        size = np.dtype(dtype).itemsize * math.prod(shape)
        array = np.frombuffer(content[begin : begin + size], dtype).reshape(shape)
        records.setdefault(name, {})[key] = array
        begin += size
    return records


def differences(found: Record, expected: Record) -> list[str]:
    """Describe differences between data and a record, a line for each entry.

    Private copies of root entries, which are newer than the records, may be in the data alone. A wrong copy shows in
    the recorded entries of the next step, which reads it.
    """
    lines = [f"{path} is missing" for path in sorted(expected.keys() - found.keys())]
    added = sorted(path for path in found.keys() - expected.keys() if "/__root_" not in f"/{path}")
    lines += [f"{path} was not expected" for path in added]
    for path in sorted(found.keys() & expected.keys()):
        one, other = found[path], expected[path]
        kinds = (one.dtype.kind, other.dtype.kind)
        if one.dtype != other.dtype and kinds != ("U", "U"):
            lines.append(f"{path}: dtype {one.dtype}, recorded {other.dtype}")
        elif one.shape != other.shape:
            lines.append(f"{path}: shape {one.shape}, recorded {other.shape}")
        else:
            lines += _first_difference(path, one, other)
    return lines


def _first_difference(path: str, one: np.ndarray, other: np.ndarray) -> list[str]:
    is_float = one.dtype.kind == "f"
    unequal = ~np.isclose(one, other, equal_nan=True, **TOLERANCE) if is_float else one != other
    if not unequal.any():
        return []
    where = tuple(int(index) for index in np.argwhere(unequal)[0]) if unequal.ndim else ()
    place = "" if "@" in path or not where else f" in row {where[0]}"
    if place and not path.startswith("last/"):
        place += f", step {where[1]}"
    count = int(unequal.sum())
    return [f"{path}{place}: {one[where]}, recorded {other[where]} ({count} of {unequal.size} values differ)"]
