"""SequentialBatch: single environments that are stepped in a loop.

It replaces the library's vector environment in versions that lose data: gym before 0.22 loses the last observations,
and gymnasium 1.0 loses one step at the start of each episode.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .compat import Adapter

__all__ = ["SequentialBatch"]


class SequentialBatch:
    """Environments that are stepped one after the other.

    A row whose episode has ended waits for a reset.

    Args:
        make: functions that make one environment each.
        adapter: the adapter of their library.
    """

    def __init__(self, make: Sequence[Callable[[], Any]], adapter: Adapter) -> None:
        self.envs = [make_env() for make_env in make]
        self.num_envs = len(self.envs)
        self.single_observation_space = self.observation_space = self.envs[0].observation_space
        self.single_action_space = self.action_space = self.envs[0].action_space
        self.spec = getattr(self.envs[0], "spec", None)
        self._adapter = adapter
        self._steps = [adapter.stepper(env) for env in self.envs]
        self._observations: list[Any] = [None] * self.num_envs
        self._ended = np.zeros((2, self.num_envs), bool)

    @property
    def unwrapped(self) -> SequentialBatch:
        """This object, because it has no wrappers."""
        return self

    @property
    def env(self) -> Any:
        """The first environment, for looking up attributes."""
        return self.envs[0]

    def reset(
        self, *, seed: int | None = None, options: dict[str, object] | None = None, mask: np.ndarray | None = None
    ) -> tuple[list[Any], list[Any]]:
        """Reset all rows, or the rows of a mask. Row ``i`` gets the seed ``seed + i``."""
        infos: list[Any] = [{}] * self.num_envs
        for i, env in enumerate(self.envs):
            if mask is None or mask[i]:
                self._observations[i], infos[i] = self._adapter.reset(env, None if seed is None else seed + i, options)
                self._ended[:, i] = False
        return list(self._observations), infos

    def step(self, actions: Sequence[Any], *, mask: np.ndarray | None = None) -> tuple[Any, ...]:
        """Step all rows, or the rows of a mask.

        Other rows keep their observation, with reward 0.
        """
        infos: list[Any] = [{}] * self.num_envs
        rewards: list[Any] = [0.0] * self.num_envs
        for i, step in enumerate(self._steps):
            if mask is None or mask[i]:
                result = step(actions[i])
                self._observations[i], rewards[i], self._ended[0, i], self._ended[1, i], infos[i] = result
        shape = next((np.shape(reward) for reward in rewards if np.ndim(reward)), ())
        stacked = np.stack([np.broadcast_to(np.asarray(reward, np.float64), shape) for reward in rewards])
        return list(self._observations), stacked, self._ended[0].copy(), self._ended[1].copy(), infos

    def render(self, **kwargs: Any) -> list[Any]:
        """Render a frame of each environment."""
        return [env.render(**kwargs) for env in self.envs]

    def close(self) -> None:
        """Close all environments."""
        for env in self.envs:
            env.close()

    def __repr__(self) -> str:
        return f"SequentialBatch({self.num_envs} x {self.envs[0]})"
