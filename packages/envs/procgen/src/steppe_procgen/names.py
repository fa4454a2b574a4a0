"""Names of the games of Procgen.

This module does not import torch.
"""

from __future__ import annotations

__all__ = ["env_names"]


def env_names() -> list[str]:
    """Return the names of all games, sorted."""
    from procgen.env import ENV_NAMES

    return sorted(ENV_NAMES)
