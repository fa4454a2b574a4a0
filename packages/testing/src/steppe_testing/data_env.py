"""DataEnv: an environment that hands out random data of given specs, for tests of transforms."""

from __future__ import annotations

from typing import Any

import torch
from tensordict import TensorDictBase

from steppe.envs import EnvBase
from steppe.specs import Bounded, Composite, Spec, Unbounded

__all__ = ["DataEnv"]


class DataEnv(EnvBase):
    """Observations and rewards are drawn from their specs, with a generator that ``set_seed`` seeds.

    Args:
        observation: specs of the observations, nested or with tuple keys, without a batch.
        max_steps: length of an episode.
        action: spec of the action, at ``action``, or a Composite.
        reward: spec of the reward, at ``reward``, or a Composite.
        **kwargs: for :class:`~steppe.envs.EnvBase`.
    """

    def __init__(
        self,
        observation: dict[Any, Spec] | Composite,
        *,
        max_steps: int = 5,
        action: Spec | None = None,
        reward: Spec | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.max_steps = max_steps
        self.observation_spec = observation if isinstance(observation, Composite) else Composite(observation)
        self.action_spec = Bounded(-1.0, 1.0, shape=(2,)) if action is None else action
        self.reward_spec = Unbounded((1,)) if reward is None else reward
        self.count = 0
        self._draws = torch.Generator().manual_seed(0)

    def _reset(self, tensordict: TensorDictBase | None = None, **kwargs: Any) -> TensorDictBase:
        self.count = 0
        data: TensorDictBase = self.full_observation_spec.rand(generator=self._draws)
        return data

    def _step(self, tensordict: TensorDictBase) -> TensorDictBase:
        self.count += 1
        data: TensorDictBase = self.full_observation_spec.rand(generator=self._draws)
        data.update(self.full_reward_spec.rand(generator=self._draws))
        return data.set("terminated", torch.tensor([self.count >= self.max_steps], device=self.device or "cpu"))

    def _set_seed(self, seed: int | None) -> None:
        if seed is None:
            self._draws.seed()
        else:
            self._draws.manual_seed(seed)

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_draws": self._draws.get_state()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        draws = torch.Generator()
        draws.set_state(state["_draws"])
        super().__setstate__({**state, "_draws": draws})
