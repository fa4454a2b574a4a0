"""clip_kernel: clamp values of rows of arrays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

__all__ = ["clip_kernel"]


def clip_kernel(
    source: np.ndarray[Any, Any], target: np.ndarray[Any, Any], low: float | None, high: float | None
) -> Callable[[], None]:
    """Return a function that clamps rows of arrays as ``torch.clamp`` does, to the bit, for use as a ``row_kernel``.

    Args:
        source: the values to read.
        target: memory for the results, of the same shape; may be ``source``.
        low: lower bound, or None.
        high: upper bound, or None.

    Returns:
        A function that reads ``source`` and writes ``target`` at each call.
    """
    least, most = (None if bound is None else np.asarray(bound).astype(target.dtype) for bound in (low, high))

    def clip() -> None:
        values = source
        if least is not None:
            values = np.maximum(values, least, out=target)
        if most is not None:
            np.minimum(values, most, out=target)

    return clip
