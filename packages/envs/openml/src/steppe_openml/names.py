"""Names of the data sets.

This module does not import torch.
"""

from __future__ import annotations

__all__ = ["SETS", "env_names"]

#: For each name of a data set: its name at OpenML, and its version there.
SETS = {
    "adult_num": ("adult", 1),
    "adult_onehot": ("adult", 1),
    "covertype": ("covertype", 3),
    "magic": ("MagicTelescope", 1),
    "mushroom_num": ("mushroom", 1),
    "mushroom_onehot": ("mushroom", 1),
    "shuttle": ("shuttle", 1),
}


def env_names() -> list[str]:
    """Return the names of the data sets, sorted."""
    return sorted(SETS)
