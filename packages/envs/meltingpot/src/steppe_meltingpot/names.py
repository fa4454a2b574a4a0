"""Names of the substrates of Melting Pot.

This module does not import torch.
"""

from __future__ import annotations

__all__ = ["env_names"]


def env_names() -> list[str]:
    """Return the names of all substrates, sorted."""
    from meltingpot import substrate

    return sorted(substrate.SUBSTRATES)
