"""Types of entries: their keys, and arrays of their values."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

__all__ = ["Array", "Flags", "Key"]

#: The key of an entry: a name, or a tuple of names for a nested entry.
Key: TypeAlias = "str | tuple[str, ...]"

#: An array of any dtype and shape.
Array: TypeAlias = np.ndarray[Any, Any]

#: A truth value for each row, ``[n]``.
Flags: TypeAlias = np.ndarray[Any, np.dtype[np.bool_]]
