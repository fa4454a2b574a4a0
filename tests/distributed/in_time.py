"""Time limit within which an error must be raised."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["in_time"]


@contextmanager
def in_time(seconds: float = 30.0) -> Iterator[None]:
    """Fail if the block takes longer: a caller who waits for an error takes it for a hang."""
    begun = time.monotonic()
    yield
    assert time.monotonic() - begun < seconds
