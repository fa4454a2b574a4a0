"""Environments of the benchmarks, for workers of every library.

They need only gymnasium and numpy.

dm_control has no vector environment, so its environments are wrapped minimally for those of gymnasium.
"""

from __future__ import annotations

import time
from typing import Any

import gymnasium
import numpy as np

__all__ = ["make_raw"]


class Slow(gymnasium.Env):
    """An environment that computes for ``ms`` milliseconds of CPU time in each step."""

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
    """An environment with stacked frames of 84x84 uint8 that need no rendering.

    Episodes have 200 steps.
    """

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
    """An environment that raises an error in its third step.

    It writes the time to the file ``path``.
    """

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
    """A task of dm_control, such as ``"cheetah-run"``, with unchanged observations."""

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
    """Make an environment of the benchmark by its name.

    Names are ``"slow:0.1"`` (milliseconds), ``"image"``, ``"raising:PATH"``, ``"dm:cheetah-run"``, and ids of
    gymnasium.
    """
    kind, _, argument = name.partition(":")
    if kind == "dm":
        return DMControl(argument)
    if kind == "slow":
        return Slow(float(argument))
    if kind == "raising":
        return Raising(argument)
    return Image() if kind == "image" else gymnasium.make(name)
