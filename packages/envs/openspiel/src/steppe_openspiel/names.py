"""Names of the games of OpenSpiel.

This module does not import torch.
"""

from __future__ import annotations

from typing import Any

__all__ = ["env_names", "short_name", "unsupported"]


def env_names() -> list[str]:
    """Return the short names of all games that can be stepped; see :func:`unsupported`."""
    import pyspiel

    return sorted(game.short_name for game in pyspiel.registered_games() if unsupported(game) is None)


def unsupported(game_type: Any) -> str | None:
    """Return why games of a ``pyspiel.GameType`` cannot be stepped, or None if they can."""
    import pyspiel

    if game_type.dynamics == pyspiel.GameType.Dynamics.MEAN_FIELD:
        return "it is a mean-field game, which has no players that act"
    if getattr(game_type, "action_structs_only", False):  # older versions lack the attribute, and such games
        return "its actions are structures, not numbers"
    return None


def short_name(game_string: str) -> str:
    """Return the name of a game without its parameters: ``"kuhn_poker"`` for ``"kuhn_poker(players=3)"``."""
    return game_string.partition("(")[0].strip()
