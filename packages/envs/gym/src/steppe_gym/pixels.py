"""Pixel observations: wrap an environment so that it observes rendered frames."""

from __future__ import annotations

from typing import Any

import numpy as np

from steppe.errors import NotSupported

from .compat import Adapter

__all__ = ["PIXELS", "are_frames", "observes_pixels", "with_pixels"]

#: The key of frames in the data.
PIXELS = "pixels"


def are_frames(space: Any) -> bool:
    """Whether values of a space are RGB images.

    Such a space is a Box from 0 to 255 of shape ``[H, W, 3]``.

    >>> import numpy as np
    >>> from gymnasium import spaces
    >>> from steppe_gym import are_frames
    >>> are_frames(spaces.Box(0, 255, (84, 84, 3), np.uint8)), are_frames(spaces.Box(0, 255, (84, 84), np.uint8))
    (True, False)
    """
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
    """Wrap an environment so that it observes rendered frames.

    The observation becomes a dict with ``"pixels"``, a frame rendered at each step. An environment that observes pixels
    already is returned unchanged. In most environments, the shape of a frame is known only after one has been rendered,
    so this function resets the environment.

    Args:
        env: a single environment, made with ``render_mode="rgb_array"`` in versions that have render modes.
        adapter: the adapter of its library.
        pixels_only: leave out the observation of the environment. Otherwise a Dict keeps its entries, and any other
            observation becomes ``"observation"``.

    Raises:
        NotSupported: the environment renders no frames, or is a vector environment.
    """
    if hasattr(env, "num_envs") and hasattr(env, "single_action_space"):
        raise NotSupported(
            "A vector environment does not render single frames. Make one with pixels: GymEnv(name, num_envs, "
            "from_pixels=True)."
        )
    if observes_pixels(env.observation_space):
        return env
    shape = _frame_shape(env, adapter)
    spaces = adapter.submodule("spaces")
    entries = {PIXELS: spaces.Box(0, 255, shape=shape, dtype=np.uint8)}
    space = env.observation_space
    named = hasattr(space, "spaces") and hasattr(space.spaces, "keys")
    if not pixels_only:
        entries.update(space.spaces if named else {"observation": space})

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
            entries = {PIXELS: adapter.frame(self.env)}
            if not pixels_only:
                entries.update(observation if named else {"observation": observation})
            return entries

    return PixelObservation(env)


def _frame_shape(env: Any, adapter: Adapter) -> tuple[int, ...]:
    inner = getattr(env, "unwrapped", env)
    if hasattr(inner, "mujoco_renderer") and getattr(env, "render_mode", None) == "rgb_array":
        # A MuJoCo viewer sets up its camera when it first renders, so the first render is left to the first episode.
        return (int(inner.height), int(inner.width), 3)
    adapter.reset(env)
    frame = adapter.frame(env)
    if not isinstance(frame, np.ndarray) or frame.ndim != 3:
        raise NotSupported(
            f"{env} renders no frames (found {type(frame).__name__}): make it with render_mode='rgb_array'."
        )
    height, width, channels = frame.shape
    return height, width, channels
