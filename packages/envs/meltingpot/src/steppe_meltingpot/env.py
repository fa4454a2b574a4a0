"""MeltingpotEnv: make substrates of Melting Pot by name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from steppe.registry import env_not_found

from .names import env_names
from .wrapper import MeltingpotWrapper

if TYPE_CHECKING:
    import torch

    from steppe_multi_agent import GroupMap

__all__ = ["MeltingpotEnv"]


class MeltingpotEnv(MeltingpotWrapper):
    """Make a substrate of Melting Pot by its name.

    See :class:`MeltingpotWrapper` for the data.

    >>> from steppe_meltingpot import MeltingpotEnv
    >>> env = MeltingpotEnv("commons_harvest__open", max_steps=100)
    >>> env.full_observation_spec["agents", "observation", "RGB"].shape
    torch.Size([7, 88, 88, 3])

    Args:
        substrate: a name of ``MeltingpotEnv.available_envs``, or a configuration of
            ``meltingpot.substrate.get_config``.
        roles: the role of each player. ``None``: the default roles of the substrate.
        max_steps, categorical_actions, group_map, device: see :class:`MeltingpotWrapper`.
        **kwargs: for :class:`steppe.EnvBase`.

    Raises:
        EnvNotFound: Melting Pot has no such substrate.
    """

    def __init__(
        self,
        substrate: Any,
        *,
        roles: Sequence[str] | None = None,
        max_steps: int | None = None,
        categorical_actions: bool = True,
        group_map: GroupMap = MeltingpotWrapper.default_group_map,
        device: torch.device | str | int | None = None,
        **kwargs: Any,
    ) -> None:
        from meltingpot import substrate as substrates

        config = substrate
        if isinstance(substrate, str):
            if substrate not in substrates.SUBSTRATES:
                raise env_not_found("meltingpot", substrate, names=env_names())
            config = substrates.get_config(substrate)
        super().__init__(
            substrates.build_from_config(config, roles=config.default_player_roles if roles is None else roles),
            max_steps=max_steps,
            categorical_actions=categorical_actions,
            group_map=group_map,
            device=device,
            **kwargs,
        )
        self.__dict__["substrate_name"] = substrate if isinstance(substrate, str) else "a configuration"
