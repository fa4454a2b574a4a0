"""UnityMLAgentsEnv: start Unity games by file or by name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from steppe.envs import base_arguments
from steppe.errors import ArgumentError

from .starting import start
from .wrapper import UnityMLAgentsWrapper

if TYPE_CHECKING:
    import torch

    from steppe_multi_agent import GroupMap

__all__ = ["UnityMLAgentsEnv"]


class UnityMLAgentsEnv(UnityMLAgentsWrapper):
    """Start a Unity game; see :class:`UnityMLAgentsWrapper` for the data.

    >>> from steppe_unity import UnityMLAgentsEnv
    >>> with UnityMLAgentsEnv("build/game", seed=1, no_graphics=True) as env:
    ...     env.rollout(5, break_when_any_done=False).shape
    torch.Size([5])

    Args:
        file_name: path of the game. ``None``, without ``registered_name``: the Unity editor, when its play button is
            pressed.
        registered_name: name of a game of ML-Agents' registry, which downloads it: ``"3DBall"``.
        seed: seed of the game. :meth:`set_seed` starts the game again with another one.
        group_map, categorical_actions, device: see :class:`UnityMLAgentsWrapper`.
        **kwargs: for :class:`steppe.EnvBase`; all others go to ``UnityEnvironment``: ``no_graphics=True``,
            ``worker_id=1``, ``side_channels=[...]``, ...

    Raises:
        ArgumentError: both a file and a registered name.
        EnvNotFound: the registry has no such game, or cannot be read.
    """

    def __init__(
        self,
        file_name: str | None = None,
        registered_name: str | None = None,
        *,
        seed: int = 0,
        group_map: GroupMap = None,
        categorical_actions: bool = False,
        device: torch.device | str | int | None = None,
        **kwargs: Any,
    ) -> None:
        if file_name is not None and registered_name is not None:
            raise ArgumentError(
                f"Pass file_name or registered_name, found both: file_name={file_name!r}, "
                f"registered_name={registered_name!r}."
            )
        base_kwargs = base_arguments(kwargs)
        super().__init__(
            start(file_name, registered_name, seed=seed, settings=kwargs),
            group_map=group_map,
            categorical_actions=categorical_actions,
            device=device,
            **base_kwargs,
        )
        self.__dict__.update(
            file_name=file_name,
            registered_name=registered_name,
            game=file_name or registered_name or "the Unity editor",
        )
        self.__dict__["_settings"] = kwargs

    def _set_seed(self, seed: int | None) -> None:
        self._env.close()
        self.wrap_library(
            start(self.file_name, self.registered_name, seed=(seed or 0) % 2**31, settings=self._settings)
        )
        self._env.reset()
        self.__dict__["_at_beginning"] = True
        for name, behavior in self.behaviors.items():
            behavior.restart(self._numbers(name))
