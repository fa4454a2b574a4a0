"""Memory that environments write into: numpy and torch views of one allocation, laid out from specs."""

from __future__ import annotations

from steppe.storage.build import (
    TensorDictBuilder,
    build_alike,
    build_td,
    copy_names,
    entries,
    find_entry,
    has_plain_call,
    level_at,
    name_dims,
    parts_of,
    shallow_copy,
)
from steppe.storage.large_arrays import LARGE, large_array, large_clone, large_tensor
from steppe.storage.layout import Layout, no_storage_reason, split_loose
from steppe.storage.storage import Storage
from steppe.storage.write_arrays import TOLIST_LIMIT, clear_rows, copy_rows, set_array

__all__ = [
    "LARGE",
    "TOLIST_LIMIT",
    "Layout",
    "Storage",
    "TensorDictBuilder",
    "build_alike",
    "build_td",
    "clear_rows",
    "copy_names",
    "copy_rows",
    "entries",
    "find_entry",
    "has_plain_call",
    "large_array",
    "large_clone",
    "large_tensor",
    "level_at",
    "name_dims",
    "no_storage_reason",
    "parts_of",
    "set_array",
    "shallow_copy",
    "split_loose",
]
