"""Environments that return random data of any specs, for tests of transforms."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from tensordict import TensorDictBase

from steppe.envs import ArrayEnv, EnvBase
from steppe.specs import Bounded, Composite, Spec, Unbounded

__all__ = ["ArrayDataEnv", "DataEnv"]


class _RandomDataEnv(EnvBase):
    """Base class: the specs, and the generator of the random data."""

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

    def _first(self) -> TensorDictBase:
        self.count = 0
        data: TensorDictBase = self.full_observation_spec.rand(generator=self._draws)
        return data

    def _following(self) -> TensorDictBase:
        self.count += 1
        data: TensorDictBase = self.full_observation_spec.rand(generator=self._draws)
        return data.update(self.full_reward_spec.rand(generator=self._draws))

    def _seed_draws(self, seed: int | None) -> None:
        if seed is None:
            self._draws.seed()
        else:
            self._draws.manual_seed(seed)

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_draws": self._draws.get_state()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        draws = torch.Generator()
        draws.set_state(state["_draws"])
        super().__setstate__({**state, "_draws": draws})  # type: ignore[no-untyped-call]


class DataEnv(_RandomDataEnv):
    """An environment that returns random data, drawn from its specs.

    ``set_seed`` seeds the generator.

    >>> import torch
    >>> from steppe import Bounded, Unbounded
    >>> from steppe_testing import DataEnv
    >>> env = DataEnv({"pixels": Bounded(0, 255, (3, 8, 8), dtype=torch.uint8), "speed": Unbounded((2,))})
    >>> env.rollout(4)["pixels"].shape
    torch.Size([4, 3, 8, 8])

    Args:
        observation: specs of the observations, nested or with tuple keys, without batch dimensions.
        max_steps: length of an episode.
        action: spec of the entry ``action``, or a Composite. Default: ``Bounded(-1, 1, (2,))``.
        reward: spec of the entry ``reward``, or a Composite. Default: ``Unbounded((1,))``.
        **kwargs: arguments of :class:`~steppe.envs.EnvBase`.
    """

    def _reset(self, tensordict: TensorDictBase | None = None, **kwargs: Any) -> TensorDictBase:
        return self._first()

    def _step(self, tensordict: TensorDictBase) -> TensorDictBase:
        data = self._following()
        return data.set("terminated", torch.tensor([self.count >= self.max_steps], device=self.device or "cpu"))

    def _set_seed(self, seed: int | None) -> None:
        self._seed_draws(seed)


class ArrayDataEnv(ArrayEnv, _RandomDataEnv):
    """The array version of :class:`DataEnv`.

    It writes the same data for the same specs and seed.

    >>> from steppe import Unbounded
    >>> from steppe_testing import ArrayDataEnv, DataEnv, assert_equal_data
    >>> rollouts = []
    >>> for cls in (DataEnv, ArrayDataEnv):
    ...     env = cls({"speed": Unbounded((2,))})
    ...     _ = env.set_seed(0)
    ...     rollouts.append(env.rollout(4))
    >>> assert_equal_data(*rollouts)
    """

    def reset_into(
        self, out: dict[Any, np.ndarray[Any, Any]], seed: int | None, env_info: dict[str, Any] | None
    ) -> None:
        """Draw the first observations."""
        if seed is not None:
            self._seed_draws(seed)
        data = self._first()
        for key, row in out.items():
            row[...] = data.get(key).numpy()

    def step_into(self, action: Any, out: dict[Any, np.ndarray[Any, Any]]) -> tuple[bool, bool]:
        """Draw observations and reward."""
        data = self._following()
        for key, row in out.items():
            row[...] = data.get(key).numpy()
        return self.count >= self.max_steps, False
