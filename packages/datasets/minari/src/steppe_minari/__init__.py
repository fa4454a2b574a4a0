"""Data sets of Minari for steppe: load them as replay buffers, and save collected data."""

from __future__ import annotations

from steppe_minari.minari_format import MinariFormat, save_minari

__all__ = ["MinariFormat", "save_minari"]
