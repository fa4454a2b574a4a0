"""Names of the games of OpenSpiel.

This module does not import torch.
"""

from __future__ import annotations

__all__ = ["env_names", "short_name"]


def env_names() -> list[str]:
    """Return the short names of all games except mean-field games, which have no players that steppe could step."""
    import pyspiel

    mean_field = pyspiel.GameType.Dynamics.MEAN_FIELD
    return sorted(game.short_name for game in pyspiel.registered_games() if game.dynamics != mean_field)


def short_name(game_string: str) -> str:
    """Return the name of a game without its parameters: ``"kuhn_poker"`` for ``"kuhn_poker(players=3)"``."""
    return game_string.partition("(")[0].strip()
