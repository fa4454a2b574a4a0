"""What tests of requests share with those of batches: nothing may be left behind."""

from __future__ import annotations

from tests.core.batched.conftest import nothing_left

__all__ = ["nothing_left"]
