"""An environment with large observations, for large batches."""

from __future__ import annotations

from typing import Any

import torch

from steppe import ArrayEnv, Categorical, Composite, Unbounded

__all__ = ["Screen"]


class Screen(ArrayEnv):
    """Shows how many steps it has taken, and its action, on a screen of 256 KB."""

    def __init__(self) -> None:
        super().__init__()
        self.observation_spec = Composite(pixels=Unbounded((256, 256), dtype=torch.float32))
        self.action_spec = Categorical(5)

    def reset_into(self, out: Any, seed: int | None, env_info: Any) -> None:
        self.count = 0
        out["pixels"][...] = 0

    def step_into(self, action: Any, out: Any) -> tuple[bool, bool]:
        self.count += 1
        out["pixels"][...] = self.count
        out["pixels"][0, 0] = action
        out["reward"][...] = self.count
        return False, self.count % 5 == 0
