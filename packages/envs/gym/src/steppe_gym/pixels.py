"""Frames as observations: a wrapper of the library's own kind, the same for every version."""

from __future__ import annotations

from typing import Any

import numpy as np

from steppe.errors import NotSupported

from .compat import Adapter

__all__ = ["PIXELS", "are_frames", "observes_pixels", "with_pixels"]

#: Where frames are in data.
PIXELS = "pixels"


def are_frames(space: Any) -> bool:
    """Whether values of a space are RGB images: a Box from 0 to 255 of shape ``[H, W, 3]``."""
    low: Any
    high: Any
    low, high, shape = (getattr(space, name, None) for name in ("low", "high", "shape"))
    if low is None or shape is None or len(shape) != 3 or shape[-1] != 3:
        return False
    return bool((low == 0).all() and (high == 255).all())


def observes_pixels(space: Any) -> bool:
    """Whether an observation space is one of frames, or a Dict with ``"pixels"``."""
    named: Any = getattr(space, "spaces", None)
    return PIXELS in named if hasattr(named, "keys") else are_frames(space)


def with_pixels(env: Any, adapter: Adapter, *, pixels_only: bool) -> Any:
    """Wrap an environment so that its observation is a dict with ``"pixels"``, a frame rendered at each step.

    One that observes pixels already is returned as it is.

    The shape of a frame is mostly known only once one is rendered, so the environment is reset here.

    Args:
        env: a single environment, made with ``render_mode="rgb_array"`` where its version knows render modes.
        adapter: how its library is talked to.
        pixels_only: leave its own observation out. Otherwise a Dict keeps its entries, and anything else becomes
            ``"observation"``.

    Raises:
        NotSupported: it renders no frames, or it is a vector environment.
    """
    if hasattr(env, "num_envs") and hasattr(env, "single_action_space"):
        raise NotSupported("A vector environment renders no single frame: GymEnv(name, num_envs, from_pixels=True).")
    if observes_pixels(env.observation_space):
        return env
    shape = _frame_shape(env, adapter)
    spaces = adapter.submodule("spaces")
    entries = {PIXELS: spaces.Box(0, 255, shape=shape, dtype=np.uint8)}
    own = env.observation_space
    named = hasattr(own, "spaces") and hasattr(own.spaces, "keys")
    if not pixels_only:
        entries.update(own.spaces if named else {"observation": own})

    class PixelObservation(adapter.module.Wrapper):  # type: ignore[name-defined,misc]
        def __init__(self, env: Any) -> None:
            super().__init__(env)
            self.observation_space = spaces.Dict(entries)

        def step(self, action: Any) -> Any:
            observation, *rest = self.env.step(action)
            return (self._with_frame(observation), *rest)

        def reset(self, **kwargs: Any) -> Any:
            observation, info = adapter.sort_reset(self.env.reset(**kwargs))
            return self._with_frame(observation), info

        def _with_frame(self, observation: Any) -> dict[str, Any]:
            found = {PIXELS: adapter.frame(self.env)}
            if not pixels_only:
                found.update(observation if named else {"observation": observation})
            return found

    return PixelObservation(env)


def _frame_shape(env: Any, adapter: Adapter) -> tuple[int, ...]:
    inner = getattr(env, "unwrapped", env)
    if hasattr(inner, "mujoco_renderer") and getattr(env, "render_mode", None) == "rgb_array":
        # A viewer of MuJoCo looks at where things are when it first renders: leave that to the first episode.
        return (int(inner.height), int(inner.width), 3)
    adapter.reset(env)
    frame = adapter.frame(env)
    if not isinstance(frame, np.ndarray) or frame.ndim != 3:
        raise NotSupported(
            f"{env} renders no frames (found {type(frame).__name__}): make it with render_mode='rgb_array'."
        )
    height, width, channels = frame.shape
    return height, width, channels
