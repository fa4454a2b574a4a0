"""What the tests of a plugin need: fixtures, and packages that exist only as metadata."""

from __future__ import annotations

from .fake_dists import FakeDists

__all__ = ["FakeDists"]
