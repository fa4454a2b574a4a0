"""Double of Habitat-Lab: tasks that it registers with gym, without habitat-sim.

It is built from the sources of habitat-lab 0.3 (``gym/gym_definitions.py``, ``gym/gym_wrapper.py``, ``core/env.py``,
``core/environments.py``). The room is a plane in numpy.

Kept from the library: the API of gym 0.22, ``reset`` returns observations alone and ``step`` four values; ``reset``
takes a seed and ignores it, ``seed`` seeds the global generators of Python and numpy; one flag for all ends, the time
limit among them; observations are dicts whose arrays are written again in the next step; a step after the end is an
assertion.
``override_options`` set values of the configuration.
"""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any

import gym
import numpy as np

from . import Double

__all__ = ["DOUBLE", "PickTask", "make", "register"]


class Env:
    """The environment inside: counts steps, and knows whether the episode is over."""

    def __init__(self, config: dict[str, Any]) -> None:
        self.config = config
        self.task = SimpleNamespace(is_episode_active=False)
        self._elapsed_steps = 0
        self._max_episode_steps = int(config["habitat.environment.max_episode_steps"])
        self._episode_over = True
        self.place = np.zeros(2, np.float32)
        self.goal = np.zeros(2, np.float32)
        self._pixels = np.zeros((16, 24, 3), np.uint8)

    def _past_limit(self) -> bool:
        return self._max_episode_steps != 0 and self._max_episode_steps <= self._elapsed_steps

    def seed(self, seed: int) -> None:
        random.seed(seed)
        np.random.seed(seed)

    def reset(self) -> dict[str, Any]:
        self._elapsed_steps, self._episode_over = 0, False
        self.task.is_episode_active = True
        self.place[:] = np.random.uniform(-1, 1, 2)
        self.goal[:] = [random.uniform(-1, 1), random.uniform(-1, 1)]
        return self.observe()

    def observe(self) -> dict[str, Any]:
        self._pixels[:] = (np.abs(self.place).sum() * 50).astype(np.uint8)
        return {"head_rgb": self._pixels, "goal": self.goal, "joint": self.place}

    def step(self, action: np.ndarray) -> dict[str, Any]:
        assert self._episode_over is False, "Episode over, call reset before calling step"
        self._elapsed_steps += 1
        self.place += 0.2 * np.asarray(action[:2], np.float32)
        self.task.is_episode_active = bool(self.distance() > 0.3)
        self._episode_over = not self.task.is_episode_active or self._past_limit()
        return self.observe()

    def distance(self) -> float:
        return float(np.linalg.norm(self.place - self.goal))


class PickTask(gym.Env):  # type: ignore[misc]
    """A task for reinforcement learning, as gym sees it.

    Args:
        config: values of the configuration by path.
    """

    metadata = {"render.modes": ["rgb_array"]}

    def __init__(self, config: dict[str, Any]) -> None:
        self._env = Env(config)
        box = gym.spaces.Box
        self.observation_space = gym.spaces.Dict(
            head_rgb=box(0, 255, (16, 24, 3), np.uint8),
            goal=box(-np.inf, np.inf, (2,), np.float32),
            joint=box(-np.inf, np.inf, (2,), np.float32),
        )
        self.action_space = box(-1.0, 1.0, (3,), np.float32)
        self.seed(int(config["habitat.seed"]))

    def reset(self, *args: Any, return_info: bool = False, **kwargs: Any) -> Any:
        """Begin an episode; ``seed`` among the arguments is ignored."""
        observations = self._env.reset()
        return (observations, {}) if return_info else observations

    def step(self, action: Any) -> tuple[Any, float, bool, dict[str, Any]]:
        """Step the task."""
        assert self.action_space.contains(action), f"Invalid action {action} for action space {self.action_space}"
        observations = self._env.step(action)
        reward = -self._env.distance()
        return observations, reward, self._env._episode_over, {"distance": self._env.distance()}

    def seed(self, seed: int | None = None) -> None:
        self._env.seed(0 if seed is None else seed)

    def render(self, mode: str = "human", **kwargs: Any) -> Any:
        """Return an image of the observations, with mode ``"rgb_array"``."""
        if mode != "rgb_array":
            raise ValueError(f"Render mode {mode} not currently supported.")
        return np.array(self._env._pixels)


def make(cfg_file_path: str, override_options: Any = None, use_render_mode: bool = False) -> PickTask:
    """Make a task, with options ``"path=value"`` of the configuration."""
    config: dict[str, Any] = {"habitat.seed": 100, "habitat.environment.max_episode_steps": 30, "file": cfg_file_path}
    config.update(option.split("=", 1) for option in override_options or ())
    return PickTask(config)


def register() -> None:
    """Register the tasks with gym, as the import of ``habitat.gym`` does."""
    registry = gym.envs.registry
    known = getattr(registry, "env_specs", registry)
    for name in ("Pick", "Place", "RenderPick", "RenderPlace"):
        if f"Habitat{name}-v0" not in known:
            kwargs = {"cfg_file_path": f"benchmark/{name}.yaml", "use_render_mode": name.startswith("Render")}
            gym.envs.registration.register(f"Habitat{name}-v0", entry_point=f"{__name__}:make", kwargs=kwargs)


DOUBLE = Double(
    dists={"habitat-lab": "0.3.3"},
    files={
        "habitat/__init__.py": "",
        "habitat/gym/__init__.py": f"from {__name__} import register\nregister()\n",
    },
)
