"""Random actions that go on from batch to batch."""

from __future__ import annotations

from typing import Any

import torch
from tensordict import TensorDict, TensorDictBase

from steppe.envs import EnvBase, draws_in_blocks, random_block
from steppe.storage import entries

__all__ = ["RandomActions"]


class RandomActions:
    """The random actions of a rollout that does not end: drawn in the same blocks, used step by step or in slices.

    Args:
        env: the environment; the numbers come from the generator that its ``set_seed`` seeded.
    """

    def __init__(self, env: EnvBase) -> None:
        self.in_blocks = draws_in_blocks(env)
        self._env = env
        self._keys = list(env.action_keys)
        self._flat = all(isinstance(key, str) for key in self._keys)
        self._generator = env.action_generator() if self.in_blocks else None
        self._block: dict[Any, torch.Tensor] = {}
        self._at = 0
        self._size = 0

    def take(self, at_most: int) -> dict[Any, torch.Tensor]:
        """Return the actions of the next steps, ``{key: [k, *shape]}`` with ``1 <= k <= at_most``."""
        if self._at == self._size:
            assert self._generator is not None
            self._block = random_block(self._env, self._generator)
            self._at, self._size = 0, len(self._block[self._keys[0]])
        start, self._at = self._at, min(self._at + at_most, self._size)
        return {key: value[start : self._at] for key, value in self._block.items()}

    def __call__(self, tensordict: TensorDictBase) -> TensorDictBase:
        """Write the actions of one step."""
        if not self.in_blocks:
            return self._env.rand_action(tensordict)
        if self._at == self._size:
            self.take(1)
            self._at = 0
        step, self._at = self._at, self._at + 1
        if type(tensordict) is TensorDict and self._flat and not tensordict.is_locked:
            level = entries(tensordict)
            for key, value in self._block.items():
                level[key] = value[step]
        else:
            for key, value in self._block.items():
                tensordict.set(key, value[step])
        return tensordict
