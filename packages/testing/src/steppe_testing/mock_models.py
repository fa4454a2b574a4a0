"""A world model that counts steps, and a policy with a constant action."""

from __future__ import annotations

from typing import Any

import torch
from tensordict import NestedKey, TensorDict, TensorDictBase
from tensordict.nn import TensorDictModule

from steppe.envs import EnvBase
from steppe.specs import Composite, Unbounded
from steppe_models import ModelBasedEnvBase

from .mock_actions import action_leaf

__all__ = ["ConstantPolicy", "ModelCountingEnv"]


class ModelCountingEnv(ModelBasedEnvBase):
    """An environment that counts its steps with a world model.

    It accepts data of any batch size. ``count`` ``[*B, 1]`` float32 is an observation and a state. The world model adds
    its parameter ``step`` (initially 1) to it; ``reward`` ``[*B, 1]`` is the new count, and gradients reach the
    parameter through both. ``terminated`` is True from ``max_steps`` on.

    >>> import torch
    >>> from steppe_testing import ModelCountingEnv
    >>> from tensordict import TensorDict
    >>> env = ModelCountingEnv(max_steps=5)
    >>> root = env.reset(TensorDict(batch_size=[3]))
    >>> with torch.no_grad():
    ...     data = env.rollout(2, tensordict=root, auto_reset=False)
    >>> data["next", "count"].squeeze(-1)
    tensor([[1., 2.],
            [1., 2.],
            [1., 2.]])

    Args:
        max_steps: length of an episode.
        **kwargs: arguments of :class:`~steppe_models.ModelBasedEnvBase`.
    """

    def __init__(self, max_steps: int = 5, **kwargs: Any) -> None:
        keys: list[NestedKey] = ["count", "reward", "terminated"]
        super().__init__(TensorDictModule(_AddStep(max_steps), in_keys=["count"], out_keys=keys), **kwargs)
        size = self.batch_size
        self.observation_spec = Composite(count=Unbounded((*size, 1)), shape=size)
        self.state_spec = Composite(count=Unbounded((*size, 1)), shape=size)
        self.action_spec = action_leaf("one_hot", tuple(size))
        self.reward_spec = Unbounded((*size, 1))

    def _reset(self, tensordict: TensorDictBase | None = None, **kwargs: Any) -> TensorDictBase:
        size = self.batch_size if tensordict is None else tensordict.batch_size
        return TensorDict({"count": torch.zeros(*size, 1, device=self.device or "cpu")}, size, self.device)


class _AddStep(torch.nn.Module):
    def __init__(self, max_steps: int) -> None:
        super().__init__()
        self.max_steps = max_steps
        self.step = torch.nn.Parameter(torch.ones((), device="cpu"))

    def forward(self, count: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        count = count + self.step
        return count, count, count >= self.max_steps


class ConstantPolicy:
    """A policy that writes the same action at all action keys of an environment.

    >>> from steppe_testing import ConstantPolicy, CountingEnv
    >>> env = CountingEnv()
    >>> env.rollout(3, ConstantPolicy(env, 2))["next", "reward"].flatten()
    tensor([2., 2., 2.])

    Args:
        env: the environment, with actions that can be enumerated (see :meth:`~steppe.specs.Spec.enumerate`).
        number: index of the action in the enumeration.
    """

    def __init__(self, env: EnvBase, number: int = 1) -> None:
        self.actions = {key: env.full_action_spec[key].enumerate()[number] for key in env.action_keys}

    def __call__(self, tensordict: TensorDictBase) -> TensorDictBase:
        """Write the actions into ``tensordict``, and return it.

        ``tensordict`` has the batch size of the environment.
        """
        for key, action in self.actions.items():
            tensordict.set(key, action.clone())
        return tensordict
