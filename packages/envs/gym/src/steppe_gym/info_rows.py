"""Infos of environments in rows: packed where the environment is, read where the caller is.

An info dict has no fixed layout, but most environments return the same keys with numbers of the same types at each
step. A row has a block of bytes for them. The first dict with new keys or types is pickled into the block, with its
*signature*. Later dicts of that signature are packed as numbers, which takes a tenth of the time, and the caller reads
each key of all rows as one array. Values that do not fit into the block wait where the environment is until the caller
fetches them.
"""

from __future__ import annotations

import pickle
import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from steppe.specs import Spec, Unbounded

__all__ = ["CODE", "DATA", "InfoReader", "InfoWriter", "Signature", "info_specs"]

CODE, DATA = "info_code", "info_data"
#: Bytes for the info of a row. Those of MuJoCo and Atari environments take 30 to 120.
CAPACITY = 512

# The first number of a code: no info, numbers of a signature (the second number), a pickle of that many bytes, or an
# info that the caller has to fetch.
_NOTHING, _PACKED, _PICKLED, _WAITING = range(4)

_INTS = {1: "b", 2: "h", 4: "i", 8: "q"}
_FLOATS = {2: "e", 4: "f", 8: "d"}


def info_specs() -> dict[str, Spec]:
    """Return the specs of the entries that a row has for an info."""
    return {
        CODE: Unbounded(shape=(2,), dtype=torch.int64),
        DATA: Unbounded(shape=(CAPACITY,), dtype=torch.uint8),
    }


class Field:
    """One key of a signature.

    Attributes:
        kind: the type of the value: ``"int"``, ``"float"``, ``"bool"``, ``"number"`` (of numpy), ``"flag"`` (numpy's
            bool) or ``"array"``.
        dtype, shape: of the value.
    """

    __slots__ = ("dtype", "key", "kind", "offset", "shape")

    def __init__(self, key: str, kind: str, dtype: str, shape: tuple[int, ...]) -> None:
        self.key, self.kind, self.dtype, self.shape = key, kind, np.dtype(dtype), shape
        self.offset = 0

    @property
    def nbytes(self) -> int:
        """The bytes of the value."""
        return int(self.dtype.itemsize * np.prod(self.shape, dtype=np.int64))

    @property
    def code(self) -> str:
        """The value's format in a struct."""
        if self.kind == "array":
            return f"{self.nbytes}x"
        if self.dtype.kind == "b":
            return "?"
        if self.dtype.kind == "f":
            return _FLOATS[self.dtype.itemsize]
        code = _INTS[self.dtype.itemsize]
        return code if self.dtype.kind == "i" else code.upper()

    def value(self, number: Any) -> Any:
        """Return the value that was packed as a number, with its type."""
        if self.kind == "number" or self.kind == "flag":
            return self.dtype.type(number)
        return number


class Signature:
    """Keys and types of an info, and where each value is in the block.

    Args:
        fields: for each key ``(key, kind, dtype, shape)``.

    Attributes:
        key: the argument; equal signatures have equal ones.
    """

    def __init__(self, fields: tuple[tuple[str, str, str, tuple[int, ...]], ...]) -> None:
        self.key = fields
        self.fields = [Field(*field) for field in fields]
        offset = 0
        for field in self.fields:
            field.offset = offset
            offset += field.nbytes
        self.size = offset
        self.numbers = [field for field in self.fields if field.kind != "array"]
        self.arrays = [field for field in self.fields if field.kind == "array"]
        self.struct = struct.Struct("=" + "".join(field.code for field in self.fields))
        self.dtype = np.dtype(
            {
                "names": [field.key for field in self.fields],
                "formats": [(field.dtype, field.shape) if field.shape else field.dtype for field in self.fields],
                "offsets": [field.offset for field in self.fields],
                "itemsize": max(self.size, 1),
            }
        )

    def read(self, block: np.ndarray) -> dict[str, Any]:
        """Return the info in the block of one row."""
        numbers = iter(self.struct.unpack_from(block.data))
        info = {}
        for field in self.fields:
            if field.kind == "array":
                data = block[field.offset : field.offset + field.nbytes]
                info[field.key] = np.frombuffer(data.tobytes(), field.dtype).reshape(field.shape).copy()
            else:
                info[field.key] = field.value(next(numbers))
        return info


def _fields_of(info: Mapping[str, Any]) -> tuple[tuple[str, str, str, tuple[int, ...]], ...] | None:
    """Return the fields of the signature of an info; None if a value is not packed."""
    fields: list[tuple[str, str, str, tuple[int, ...]]] = []
    for key, value in info.items():
        kind = type(value)
        if type(key) is not str or not key:
            return None
        if kind is int:
            fields.append((key, "int", "i8", ()))
        elif kind is float:
            fields.append((key, "float", "f8", ()))
        elif kind is bool:
            fields.append((key, "bool", "?", ()))
        elif kind is np.bool_:
            fields.append((key, "flag", "?", ()))
        elif isinstance(value, np.number) and value.dtype.kind in "iuf" and value.dtype.itemsize <= 8:
            fields.append((key, "number", value.dtype.str, ()))
        elif kind is np.ndarray and value.dtype.kind in "biufc" and value.size:
            fields.append((key, "array", value.dtype.str, value.shape))
        else:
            return None
    return tuple(fields)


class InfoWriter:
    """Write infos into the block of one row.

    Args:
        out: the views of the row.
        known: the numbers of the signatures that the caller knows, by fields. All writers of an environment share it.
        waiting: takes an info that does not fit into the block.

    Attributes:
        marked: whether the code says that there is an info.
    """

    def __init__(self, out: Mapping[Any, np.ndarray], known: dict[Any, int], waiting: Callable[[Any], None]) -> None:
        self._code, self._data = out[CODE], out[DATA]
        self._buffer = self._data.data
        self._known, self._waiting = known, waiting
        self._keys: tuple[str, ...] = ()
        self._types: tuple[type, ...] = ()
        self._number = 0
        self._signature: Signature | None = None
        self._arrays: list[tuple[str, np.ndarray]] = []
        self.marked = True

    def write(self, info: dict[str, Any], loose: dict[int, Any] | None = None) -> None:
        """Write an info, and values of loose parts of the observation by position."""
        if not info and not loose:
            if self.marked:
                self._code[0] = _NOTHING
                self.marked = False
            return
        self.marked = True
        if not loose and self._signature is not None and self._pack(info):
            self._code[0] = _PACKED
            self._code[1] = self._number
            return
        self._pickle(info, loose)

    def _pack(self, info: dict[str, Any]) -> bool:
        """Write an info as numbers; return whether it has the signature of the last one, or another known one."""
        if tuple(info) != self._keys or tuple(map(type, info.values())) != self._types:
            fields = _fields_of(info)
            if fields not in self._known:
                return False
            self._use(info, fields)
        signature = self._signature
        assert signature is not None
        for key, view in self._arrays:
            value = info[key]
            if value.shape != view.shape or value.dtype != view.dtype:
                return False
        try:
            if self._arrays:
                signature.struct.pack_into(self._buffer, 0, *[info[field.key] for field in signature.numbers])
                for key, view in self._arrays:
                    view[...] = info[key]
            else:
                signature.struct.pack_into(self._buffer, 0, *info.values())
        except struct.error:  # an int of more than 64 bits
            return False
        return True

    def _use(self, info: dict[str, Any], fields: Any) -> None:
        """Pack infos of this signature from now on."""
        self._keys, self._types = tuple(info), tuple(map(type, info.values()))
        self._number, signature = self._known[fields], Signature(fields)
        self._signature = signature
        self._arrays = [
            (
                field.key,
                self._data[field.offset : field.offset + field.nbytes].view(field.dtype).reshape(field.shape),
            )
            for field in signature.arrays
        ]

    def _pickle(self, info: dict[str, Any], loose: dict[int, Any] | None) -> None:
        fields = _fields_of(info) if info else None
        new = None
        if fields is not None and fields not in self._known and Signature(fields).size <= CAPACITY:
            new = (len(self._known), fields)
            self._known[fields] = len(self._known)
        if fields in self._known:
            self._use(info, fields)
        payload = (info, loose, new)
        data = pickle.dumps(payload, pickle.HIGHEST_PROTOCOL)
        if len(data) > CAPACITY:
            self._code[0] = _WAITING
            self._waiting(payload)
            return
        self._code[0], self._code[1] = _PICKLED, len(data)
        self._data[: len(data)] = np.frombuffer(data, np.uint8)


class InfoReader:
    """Read the infos of all rows.

    Args:
        arrays: ``[n, ...]`` arrays of the rows.
        signatures: of each row the signatures by number. The readers of a batch share it.
        fetch: returns, of each row, the info that waits where its environment is, for a ``place``.
        fetch_known: returns, of each row, the numbers of its signatures by their fields.
        place: ``"next"`` or ``"root"``.
        loose: of each loose part of the observation the value in each row, which this object updates.
    """

    def __init__(
        self,
        arrays: Mapping[Any, np.ndarray],
        signatures: list[dict[int, Signature]],
        loose: list[list[Any]],
        *,
        fetch: Callable[[str], Sequence[Any]],
        fetch_known: Callable[[], Sequence[Any]],
        place: str,
    ) -> None:
        self._codes, self._data = arrays[CODE], arrays[DATA]
        self.n = len(self._codes)
        self._signatures, self._loose = signatures, loose
        self._fetch, self._fetch_known, self._place = fetch, fetch_known, place
        self._columns: dict[int, list[tuple[str, str, np.ndarray, Field]]] = {}
        self._last: bytes = b""
        self._common: Signature | None = None
        #: The bytes of the codes of rows without infos.
        self._none = np.zeros(self.n, np.int64).tobytes()

    @property
    def empty(self) -> bool:
        """Whether no row has an info."""
        return self._codes[:, 0].tobytes() == self._none

    def columns(self) -> list[tuple[str, str, np.ndarray, Field]] | None:
        """Return key, name of the mask, values ``[n, ...]`` and field of each info.

        The values are views. The result is None if the rows do not have equal signatures: :meth:`rows` reads them.
        """
        codes = self._codes.tobytes()
        if codes != self._last:
            self._last, self._common = codes, self._signature_of_all()
        if self._common is None:
            return None
        found = self._columns.get(id(self._common))
        if found is None:
            signature = self._common
            record = self._data[:, : max(signature.size, 1)].view(signature.dtype)[:, 0]
            found = [(field.key, f"_{field.key}", record[field.key], field) for field in signature.fields]
            self._columns[id(signature)] = found
        return found

    def _signature_of_all(self) -> Signature | None:
        codes = self._codes.tolist()
        if any(kind != _PACKED for kind, _ in codes):
            return None
        first = self._signature(0, codes[0][1])
        return first if all(self._signature(row, number) is first for row, (_, number) in enumerate(codes)) else None

    def _signature(self, row: int, number: int) -> Signature:
        if number not in self._signatures[row]:
            # The step that reported it was interrupted.
            for at, known in enumerate(self._fetch_known()):
                self._signatures[at].update((i, self._intern(fields)) for fields, i in known.items())
        return self._signatures[row][number]

    def rows(self, at: Sequence[int] | None = None) -> dict[int, dict[str, Any]]:
        """Return the infos of rows that have one, by row, and take over loose parts of observations.

        Args:
            at: which rows; all by default.
        """
        infos: dict[int, dict[str, Any]] = {}
        codes = self._codes.tolist()
        waiting: Sequence[Any] | None = None
        for row in range(self.n) if at is None else at:
            kind, number = codes[row]
            if kind == _NOTHING:
                continue
            if kind == _PACKED:
                infos[row] = self._signature(row, number).read(self._data[row])
                continue
            if kind == _PICKLED:
                payload = pickle.loads(self._data[row, :number].tobytes())
            else:
                waiting = self._fetch(self._place) if waiting is None else waiting
                payload = waiting[row]
            info, loose, new = payload
            if new is not None:
                self._signatures[row][new[0]] = self._intern(new[1])
            for part, value in (loose or {}).items():
                self._loose[part][row] = value
            infos[row] = info
        return infos

    def _intern(self, fields: Any) -> Signature:
        """Return the signature of these fields that other rows have, or a new one."""
        for known in self._signatures:
            for signature in known.values():
                if signature.key == fields:
                    return signature
        return Signature(fields)
