"""PettingZooEnv: make environments of PettingZoo by name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from steppe.envs import base_arguments

from .making import make
from .wrapper import PettingZooWrapper

if TYPE_CHECKING:
    import torch

    from steppe_multi_agent import GroupMap

__all__ = ["PettingZooEnv"]


class PettingZooEnv(PettingZooWrapper):
    """Make an environment of PettingZoo or MPE2 by its name.

    See :class:`PettingZooWrapper` for the data.

    >>> from steppe_pettingzoo import PettingZooEnv
    >>> env = PettingZooEnv("mpe2/simple_tag_v3", max_cycles=50)
    >>> env.group_map
    {'adversary': ['adversary_0', 'adversary_1', 'adversary_2'], 'agent': ['agent_0']}

    Args:
        task: the name, with or without its family: ``"butterfly/pistonball_v6"``, ``"pistonball_v6"``.
        parallel: whether all agents act at the same time. ``None``: yes, if the task supports it.
        return_state, group_map, use_mask, categorical_actions, seed, done_on_any, device: see
            :class:`PettingZooWrapper`.
        **kwargs: for the library and for :class:`steppe.EnvBase`. Atari games use the ROMs of ale-py by default.

    Raises:
        EnvNotFound: the library has no such environment.
        LibraryMissing: the environment needs a package that is not installed.
    """

    def __init__(
        self,
        task: str,
        parallel: bool | None = None,
        return_state: bool = False,
        group_map: GroupMap = None,
        use_mask: bool | None = None,
        categorical_actions: bool = True,
        seed: int | None = None,
        done_on_any: bool | None = None,
        *,
        device: torch.device | str | int | None = None,
        **kwargs: Any,
    ) -> None:
        base_kwargs = base_arguments(kwargs)
        env = make(task, parallel, kwargs)
        super().__init__(
            env,
            return_state=return_state,
            group_map=group_map,
            use_mask=use_mask,
            categorical_actions=categorical_actions,
            seed=seed,
            done_on_any=done_on_any,
            device=device,
            **base_kwargs,
        )
        self.__dict__["task_name"] = task
