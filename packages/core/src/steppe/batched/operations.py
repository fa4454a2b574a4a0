"""The operations of a batch on rows of its storage, as numbers, because orders to workers are numbers."""

from __future__ import annotations

__all__ = ["RESET", "RESET_BY_MASKS", "RESET_ON_DATA", "STEP", "STEP_AND_RESET"]

# RESET_ON_DATA begins at the state in the row, and resets only what the masks of the row select. RESET_BY_MASKS only
# does the latter.
STEP, STEP_AND_RESET, RESET, RESET_ON_DATA, RESET_BY_MASKS = 1, 2, 3, 4, 5
