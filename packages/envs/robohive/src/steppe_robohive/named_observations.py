"""NamedObservations: an environment of RoboHive with the API of gymnasium, and observations by name."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np

from steppe.errors import SpecError

__all__ = ["NamedObservations"]

_INFOS = ("rwd_dense", "rwd_sparse", "solved", "time")
_Array = np.ndarray[Any, Any]


class NamedObservations:
    """An environment of RoboHive whose observation is a dict.

    ``reset`` of the library takes a seed and ignores it: ``seed`` seeds it. Its observations and infos are views of its
    own memory.

    Args:
        env: the environment, with the wrapper for time limits around it.
        pixels_only: leave out the entries of ``obs_keys`` if there are pixels.
        read_info: add ``"info"``.
    """

    def __init__(self, env: Any, *, pixels_only: bool, read_info: bool) -> None:
        self.env, self.read_info = env, read_info
        inner = env.unwrapped
        visual = list(inner.visual_keys or ())
        self._images = [key for key in visual if key.startswith("rgb:") and key.endswith(":2d")]
        self._depths = [key for key in visual if key.startswith("d:")]
        self._features = [key for key in visual if key not in self._images and key not in self._depths]
        self._names = [] if pixels_only and self._images else list(inner.obs_keys)
        spaces = importlib.import_module(f"{type(env.action_space).__module__.partition('.')[0]}.spaces")
        self.action_space = env.action_space
        self.reset()
        sample = self._observation(None)
        entries: dict[str, Any] = {
            name: spaces.Box(0, 255, value.shape, np.uint8)
            if value.dtype == np.uint8
            else spaces.Box(-np.inf, np.inf, value.shape, np.float32)
            for name, value in sample.items()
            if name != "info"
        }
        if read_info:
            entries["info"] = spaces.Dict({name: spaces.Box(-np.inf, np.inf, (1,), np.float32) for name in _INFOS})
        self.observation_space = spaces.Dict(entries)

    def __getattr__(self, name: str) -> Any:
        if name == "env":  # while it is unpickled
            raise AttributeError(name)
        return getattr(self.env, name)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        """Begin an episode."""
        if seed is not None:
            self.env.unwrapped.seed(seed)
        self.env.reset(**(options or {}))
        return self._observation(None), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Step; return five values."""
        outputs = self.env.step(action)
        reward, info = float(outputs[1]), outputs[-1]
        terminated = bool(outputs[2])
        # With gym before 0.24, the wrapper for time limits says in the info whether it ended the episode.
        truncated = bool(outputs[3]) if len(outputs) == 5 else terminated and bool(info.get("TimeLimit.truncated"))
        if len(outputs) == 4:
            terminated = terminated and not truncated
        return self._observation(info), reward, terminated, truncated, info

    def _observation(self, info: dict[str, Any] | None) -> dict[str, Any]:
        inner = self.env.unwrapped
        values: dict[str, Any] = {name: _row(inner.obs_dict[name]) for name in self._names}
        if self._images or self._features or self._depths:
            seen = inner.get_exteroception()
            if self._images:
                values["pixels"] = np.stack([_image(seen[key]) for key in self._images])
            if self._depths:
                values["depths"] = np.stack([_depth(seen[key]) for key in self._depths])
            values.update({key: _row(seen[key]) for key in self._features})
        if self.read_info:
            known = {} if info is None else info
            values["info"] = {name: np.array([float(np.asarray(known.get(name, 0)))], np.float32) for name in _INFOS}
        return values


def _row(value: Any) -> _Array:
    return np.array(value, np.float32).reshape(-1)


def _image(value: Any) -> _Array:
    image = np.asarray(value)
    image = image[0] if image.ndim == 4 else image
    if image.ndim != 3 or image.dtype != np.uint8:
        raise SpecError(f"RoboHive returned an image of shape {image.shape} and dtype {image.dtype}.")
    return image


def _depth(value: Any) -> _Array:
    depth = np.asarray(value, np.float32)
    return depth[0] if depth.ndim == 3 else depth
