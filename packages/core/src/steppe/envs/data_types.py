"""Types of arrays: of any values, and of flags."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

__all__ = ["Array", "Flags"]

#: An array of any dtype and shape.
Array: TypeAlias = np.ndarray[Any, Any]

#: A truth value for each row, ``[n]``.
Flags: TypeAlias = np.ndarray[Any, np.dtype[np.bool_]]
