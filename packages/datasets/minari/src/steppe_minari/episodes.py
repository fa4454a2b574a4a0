"""Convert between trajectories, as steppe has them, and episodes, as Minari stores them.

An episode of T steps has T + 1 observations, each once. Its actions are values of the environment's action space:
numbers where steppe has one-hot vectors.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from tensordict import TensorDict, TensorDictBase

from steppe.errors import NotSupported, SpecError
from steppe.specs import CPU, Composite
from steppe_gym import are_frames, space_to_spec

__all__ = ["EpisodeLayout", "has_images"]


class EpisodeLayout:
    """The layout of one environment's episodes, and of its trajectories.

    Args:
        observation_space: a space of gymnasium.
        action_space: a space of gymnasium.
        categorical_action_encoding: discrete actions of trajectories are numbers instead of one-hot vectors.

    Raises:
        NotSupported: the observations or actions have no fixed shape.
    """

    def __init__(
        self, observation_space: spaces.Space[Any], action_space: spaces.Space[Any], categorical_action_encoding: bool
    ) -> None:
        self.observation_space, self.action_space = observation_space, action_space
        observation = space_to_spec(observation_space)
        #: The key of each entry of a Dict space; of another space the key of the observation, as steppe-gym has them.
        self._keys: dict[str, str] = {}
        self._key = "pixels" if are_frames(observation_space) else "observation"
        if isinstance(observation, Composite) and isinstance(observation_space, spaces.Dict):
            self._keys = {name: name for name in observation.keys()}
            if "state" in self._keys and "observation" not in self._keys:
                self._keys["state"] = "observation"
            self.observation = Composite({self._keys[name]: spec for name, spec in observation.items()})
        else:
            self.observation = Composite({self._key: observation})
        self.action = space_to_spec(action_space, categorical_action_encoding=categorical_action_encoding)
        for label, spec in (("observations", self.observation), ("actions", Composite({"action": self.action}))):
            for key, leaf in spec.items(True, True):
                if leaf.dtype is None or -1 in leaf.shape:
                    raise NotSupported(f"Minari's {label} {key!r} have no fixed shape: {leaf}.")

    # -- reading --------------------------------------------------------------------------------------------------

    def trajectory(self, episode: Any, number: int) -> TensorDict:
        """Return an episode as a trajectory ``[T]``.

        Args:
            episode: an ``EpisodeData`` of Minari.
            number: the number of the trajectory, for ``("collector", "traj_ids")``.
        """
        n = len(episode.rewards)
        values = _as_dict(_from_start(self.observation_space, episode.observations))
        named = {key: values[name] for name, key in self._keys.items()} if self._keys else {self._key: values}
        seen = self.observation.encode(named, lead=(n + 1,))
        action = self.action.encode(_as_dict(_from_start(self.action_space, episode.actions)), lead=(n,))
        flags = {
            "terminated": torch.from_numpy(np.asarray(episode.terminations, np.bool_)).unsqueeze(-1),
            "truncated": torch.from_numpy(np.asarray(episode.truncations, np.bool_)).unsqueeze(-1),
        }
        flags["done"] = flags["terminated"] | flags["truncated"]
        following = seen[1:].update(flags)
        following["reward"] = torch.from_numpy(np.asarray(episode.rewards, np.float32)).unsqueeze(-1)
        data: TensorDict = seen[:-1].update({key: torch.zeros_like(value) for key, value in flags.items()})
        data.update({"action": action, "next": following})
        data["collector", "traj_ids"] = torch.full((n,), number, device=CPU)
        return data

    # -- writing --------------------------------------------------------------------------------------------------

    def episode(self, steps: TensorDictBase) -> dict[str, Any]:
        """Return a trajectory ``[T]`` as the arguments of an ``EpisodeBuffer`` of Minari.

        Raises:
            SpecError: an entry is missing or has another shape, or an observation below ``"next"`` differs from that of
                the following step, so that Minari cannot store both.
        """
        n = len(steps)
        seen = {}
        for key in self.observation.keys(True, True):
            path = key if isinstance(key, tuple) else (key,)
            roots, nexts = _entry(steps, path), _entry(steps, ("next", *path))
            if not torch.equal(roots[1:], nexts[:-1]):
                raise SpecError(
                    f"Minari stores each observation once, but {('next', *path)!r} of a step differs from {key!r} of "
                    "the following step. Save data without transforms that change one of them."
                )
            seen[path] = torch.cat([roots, nexts[-1:]])
        observations: Any = self.observation.to_numpy(TensorDict(seen, [n + 1]), safe=True)
        if self._keys:
            observations = {name: observations[key] for name, key in self._keys.items()}
        else:
            observations = observations[self._key]
        flags = {name: _entry(steps, ("next", name)).reshape(n).numpy() for name in ("terminated", "truncated")}
        return {
            "observations": _to_start(self.observation_space, observations),
            "actions": _to_start(self.action_space, self.action.to_numpy(_group(steps, "action"), safe=True)),
            "rewards": _entry(steps, ("next", "reward")).reshape(n).numpy(),
            "terminations": flags["terminated"],
            "truncations": flags["truncated"],
        }

    @classmethod
    def of(
        cls, observation_space: spaces.Space[Any], action_space: spaces.Space[Any], steps: TensorDictBase
    ) -> EpisodeLayout:
        """Return the layout of trajectories, whose discrete actions are one-hot vectors or numbers."""
        layouts = [cls(observation_space, action_space, categorical) for categorical in (False, True)]
        action = _group(steps, "action")
        for layout in layouts:
            if layout.action.is_in(action):
                return layout
        raise SpecError(
            f"The actions of this data, of shape {tuple(action.shape)} and dtype {action.dtype}, are not in the action "
            f"space {action_space}. Pass the environment that the data is from."
        )


def has_images(space: spaces.Space[Any]) -> bool:
    """Whether a space, or a part of it, has bytes in two or three dimensions, which Minari may take for images."""
    if isinstance(space, (spaces.Dict, spaces.Tuple)):
        parts = space.spaces.values() if isinstance(space, spaces.Dict) else space.spaces
        return any(map(has_images, parts))
    return space.dtype == np.uint8 and len(space.shape or ()) in (2, 3)


def _entry(steps: TensorDictBase, path: tuple[str, ...]) -> torch.Tensor:
    value = steps.get(path, None)
    if not isinstance(value, torch.Tensor):
        key = path[0] if len(path) == 1 else path
        raise SpecError(f"The data has no entry {key!r}; found {sorted(map(str, steps.keys(True, True)))}.")
    return value.detach().cpu()


def _group(steps: TensorDictBase, key: str) -> Any:
    """Return an entry, which may be a group of entries."""
    value = steps.get(key, None)
    if value is None:
        raise SpecError(f"The data has no entry {key!r}; found {sorted(map(str, steps.keys(True, True)))}.")
    return value.detach().cpu()


def _as_dict(values: Any) -> Any:
    """Return the values of a Tuple as a dict with the keys of its spec."""
    if isinstance(values, tuple):
        return {str(i): _as_dict(value) for i, value in enumerate(values)}
    if isinstance(values, Mapping):
        return {name: _as_dict(value) for name, value in values.items()}
    return values


def _from_start(space: spaces.Space[Any], values: Any) -> Any:
    """Return values of a space with discrete ones from zero, as specs have them."""
    return _moved(space, values, -1)


def _to_start(space: spaces.Space[Any], values: Any) -> Any:
    """Return values of specs as values of a space."""
    return _moved(space, values, 1)


def _moved(space: spaces.Space[Any], values: Any, sign: int) -> Any:
    if isinstance(space, spaces.Dict):
        return {name: _moved(part, values[name], sign) for name, part in space.spaces.items()}
    if isinstance(space, spaces.Tuple):
        keys: Any = range(len(space.spaces)) if isinstance(values, tuple) else map(str, range(len(space.spaces)))
        return tuple(_moved(part, values[key], sign) for key, part in zip(keys, space.spaces, strict=True))
    start = getattr(space, "start", None)
    if isinstance(space, (spaces.Discrete, spaces.MultiDiscrete)) and start is not None and np.any(start):
        return np.asarray(values) + sign * np.asarray(start)
    return values
