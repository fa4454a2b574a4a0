"""Environments of the benchmarks, which workers of every library can import: gymnasium and numpy only.

dm_control has no vector environment of its own, so its environments are shown to gymnasium's by the least that does it.
"""

from __future__ import annotations

import time
from typing import Any

import gymnasium
import numpy as np

__all__ = ["make_raw"]


class Slow(gymnasium.Env):
    """Computes for ``ms`` milliseconds of its process's time in each step."""

    observation_space = gymnasium.spaces.Box(-1, 1, (4,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, ms: float) -> None:
        self.seconds = ms / 1000

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict]:
        super().reset(seed=seed)
        return np.zeros(4, np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict]:
        end = time.thread_time() + self.seconds
        while time.thread_time() < end:
            pass
        return np.zeros(4, np.float32), 0.0, False, False, {}


class Image(gymnasium.Env):
    """Shows stacked frames of 84 by 84, uint8, that it does not have to draw; episodes have 200 steps."""

    observation_space = gymnasium.spaces.Box(0, 255, (84, 84, 4), np.uint8)
    action_space = gymnasium.spaces.Discrete(6)

    def __init__(self) -> None:
        self.frames = np.random.default_rng(0).integers(0, 256, (8, 84, 84, 4), np.uint8)
        self.count = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict]:
        super().reset(seed=seed)
        self.count = 0
        return self.frames[0], {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict]:
        self.count += 1
        return self.frames[self.count % 8], 1.0, False, self.count >= 200, {}


class Raising(gymnasium.Env):
    """Raises in its third step, and notes in the file ``path`` when."""

    observation_space = gymnasium.spaces.Box(-1, 1, (4,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, path: str) -> None:
        self.path = path
        self.count = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict]:
        super().reset(seed=seed)
        return np.zeros(4, np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict]:
        self.count += 1
        if self.count == 3:
            with open(self.path, "w") as file:
                file.write(str(time.monotonic()))
            raise ValueError("raised by the benchmark")
        return np.zeros(4, np.float32), 0.0, False, False, {}


class DMControl(gymnasium.Env):
    """A task of dm_control, ``"cheetah-run"``, whose observations are handed on as they are."""

    def __init__(self, name: str) -> None:
        from dm_control import suite

        self.env = suite.load(*name.split("-"))
        found = self.env.observation_spec().items()
        spaces = {key: gymnasium.spaces.Box(-np.inf, np.inf, one.shape, one.dtype) for key, one in found}
        self.observation_space = gymnasium.spaces.Dict(spaces)
        action = self.env.action_spec()
        self.action_space = gymnasium.spaces.Box(action.minimum, action.maximum, action.shape, action.dtype)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict]:
        super().reset(seed=seed)
        return self.env.reset().observation, {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict]:
        step_type, reward, discount, observation = self.env.step(action)
        last = step_type.last()
        return observation, reward, last and discount == 0, last and discount != 0, {}


def make_raw(name: str) -> gymnasium.Env:
    """``"slow:0.1"`` (milliseconds), ``"image"``, ``"raising:PATH"``, ``"dm:cheetah-run"`` or an id of gymnasium."""
    kind, _, argument = name.partition(":")
    if kind == "dm":
        return DMControl(argument)
    if kind == "slow":
        return Slow(float(argument))
    if kind == "raising":
        return Raising(argument)
    return Image() if kind == "image" else gymnasium.make(name)
