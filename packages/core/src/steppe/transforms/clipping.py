"""clip_kernel: values between two bounds, for rows of arrays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

__all__ = ["clip_kernel"]


def clip_kernel(
    source: np.ndarray[Any, Any], target: np.ndarray[Any, Any], low: float | None, high: float | None
) -> Callable[[], None]:
    """Prepare what ``torch.clamp`` does for rows of arrays, to the bit: the ``row_kernel`` of transforms that clip.

    Args:
        source: values.
        target: where the results go, of the same shape; the same memory, or other.
        low: the smallest result; None for no lower bound.
        high: the largest, likewise.

    Returns:
        A function that reads ``source`` and writes ``target`` at each call.
    """
    least, most = (None if bound is None else np.asarray(bound).astype(target.dtype) for bound in (low, high))

    def clip() -> None:
        given = source
        if least is not None:
            given = np.maximum(given, least, out=target)
        if most is not None:
            np.minimum(given, most, out=target)

    return clip
