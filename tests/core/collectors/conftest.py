"""Checks that tests of collectors leave no process, memory or file behind."""

from __future__ import annotations

from tests.core.batched.conftest import nothing_left

__all__ = ["nothing_left"]
