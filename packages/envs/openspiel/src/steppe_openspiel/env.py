"""OpenSpielEnv: make games of OpenSpiel by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from steppe.errors import ArgumentError
from steppe.registry import env_not_found

from .names import env_names, short_name
from .wrapper import ChanceSampler, OpenSpielWrapper

if TYPE_CHECKING:
    import torch

    from steppe_multi_agent import GroupMap

__all__ = ["OpenSpielEnv"]


class OpenSpielEnv(OpenSpielWrapper):
    """Make a game of OpenSpiel by its name.

    See :class:`OpenSpielWrapper` for the data.

    >>> from steppe_openspiel import OpenSpielEnv
    >>> env = OpenSpielEnv("kuhn_poker", parameters={"players": 3})
    >>> env.group_map
    {'agents': ['player_0', 'player_1', 'player_2']}

    Args:
        game_string: a name of ``OpenSpielEnv.available_envs``, or a game string with parameters:
            ``"kuhn_poker(players=3)"``.
        parameters: parameters of the game, which ``pyspiel.load_game`` takes.
        group_map, categorical_actions, return_state, chance_sampler, device: see :class:`OpenSpielWrapper`.
        **kwargs: for :class:`steppe.EnvBase`.

    Raises:
        EnvNotFound: OpenSpiel has no such game.
        ArgumentError: OpenSpiel refuses the parameters, or the game needs some.
        NotSupported: a mean-field game, or one whose actions are no numbers.
    """

    def __init__(
        self,
        game_string: str,
        *,
        group_map: GroupMap = OpenSpielWrapper.default_group_map,
        categorical_actions: bool = False,
        return_state: bool = False,
        chance_sampler: ChanceSampler | None = None,
        parameters: Mapping[str, Any] | None = None,
        device: torch.device | str | int | None = None,
        **kwargs: Any,
    ) -> None:
        import pyspiel

        game_types = {each.short_name: each for each in pyspiel.registered_games()}
        game_type = game_types.get(short_name(game_string))
        if game_type is None:
            raise env_not_found("openspiel", game_string, names=env_names())
        try:
            game = pyspiel.load_game(game_string, dict(parameters)) if parameters else pyspiel.load_game(game_string)
        except (pyspiel.SpielError, IndexError) as error:  # IndexError: nfg_game without the parameter it needs
            raise ArgumentError(
                f"OpenSpiel cannot load {game_string!r} with the parameters {dict(parameters or {})}: {error}. The "
                f"game takes {sorted(game_type.parameter_specification)}."
            ) from error
        super().__init__(
            game.new_initial_state(),
            group_map=group_map,
            categorical_actions=categorical_actions,
            return_state=return_state,
            chance_sampler=chance_sampler,
            device=device,
            **kwargs,
        )
        self.__dict__["game_string"] = game_string

    def __repr__(self) -> str:
        return f"OpenSpielEnv({self.__dict__.get('game_string')!r})"
