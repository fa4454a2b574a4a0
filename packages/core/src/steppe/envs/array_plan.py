"""ArrayPlan: conversions between TensorDicts and rows of arrays, compiled once from the specs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from tensordict import TensorDict, TensorDictBase

from steppe.envs.action_codec import ActionCodec
from steppe.specs import Composite
from steppe.storage import Layout, TensorDictBuilder, build_td, entries, storage_problem

if TYPE_CHECKING:
    from steppe.envs.array import ArrayEnv

__all__ = ["ArrayPlan"]

_NO_BATCH = torch.Size([])
_empty = np.empty
_from_numpy = torch.from_numpy
_Tensor = torch.Tensor


class ArrayPlan:
    """How the data of one array environment lies in arrays.

    Attributes:
        obs_keys: keys that ``reset_into`` and ``step_into`` write.
        reward_keys: keys that ``step_into`` writes.
        done_keys: which of ``"done"``, ``"terminated"``, ``"truncated"`` there are.
        action_keys: keys of the actions.
    """

    @staticmethod
    def problem(env: ArrayEnv) -> str | None:
        """Say why an environment cannot have an array path, or return None."""
        for kind in ("observation", "reward", "done", "action"):
            problem = storage_problem(env._full_spec(kind))
            if problem is not None:
                return problem
        if any(leaf.numpy_dtype is None for leaf in Layout.of(env.full_observation_spec, ()).fields):
            return "an observation has a dtype that numpy lacks."
        if len(env._groups) != 1 or env._groups[0].prefix:
            return "groups end on their own."
        if not env.action_keys:
            return "there is no action."
        if env.state_keys:
            return "the environment takes a state."
        return None

    def __init__(self, env: ArrayEnv) -> None:
        observation, reward = env.full_observation_spec, env.full_reward_spec
        self.obs_keys = tuple(env.observation_keys)
        self.reward_keys = tuple(env.reward_keys)
        self.done_keys = tuple(name for name in ("done", "terminated", "truncated") if name in env.done_keys)
        self.action_keys = tuple(env.action_keys)
        self.codec = ActionCodec(env.full_action_spec)
        self.device = env.device
        self._obs = self._fields(observation)
        self._next = self._obs + self._fields(reward)
        done_shapes = {name: tuple(env.full_done_spec[name].shape) for name in self.done_keys}
        self._done_shapes = [(name, done_shapes[name]) for name in self.done_keys]
        self._flat = not any(isinstance(child, Composite) for spec in (observation, reward) for child in spec.values())
        merged = Composite({**dict(observation.items()), **_missing(reward, observation)}, shape=())
        self._next_builder = TensorDictBuilder(merged, (), device=self.device)
        self._obs_builder = TensorDictBuilder(observation, (), device=self.device)
        self._action = self._single_action(env)

    @staticmethod
    def _fields(spec: Composite) -> list[tuple[Any, tuple[int, ...], np.dtype[Any]]]:
        found = []
        for field in Layout.of(spec, ()).fields:
            dtype = field.numpy_dtype
            assert dtype is not None
            found.append((field.key, field.shape, dtype))
        return found

    def _single_action(self, env: ArrayEnv) -> tuple[Any, ...] | None:
        """The only action, at the root: what the shortest way through ``step`` needs to know of it."""
        if len(self.action_keys) != 1 or not isinstance(self.action_keys[0], str):
            return None
        key = self.action_keys[0]
        leaf = env.full_action_spec[key]
        decoder, allows = self.codec.decoders[key], self.codec.rules[key].allows
        return key, torch.Size(leaf.shape), leaf.dtype, decoder.one, None if decoder.judges else allows

    def decode(self, arrays: dict[Any, np.ndarray[Any, Any]]) -> list[Any]:
        """Turn rows of actions, ``{key: [k, *shape]}``, which ``codec.fit`` has seen, into ``k`` native actions."""
        return self.codec.decode(arrays)

    def native(self, tensordict: TensorDictBase) -> Any:
        """Return the native action in ``tensordict``. One whose dtype is another is converted there too.

        Raises:
            ActionError: it is missing, or does not fit; see :mod:`steppe.envs.action_rules`.
        """
        single = self._action
        if single is None:
            return self.codec.from_tensordict(tensordict)
        key, shape, dtype, decode, allows = single
        action = entries(tensordict).get(key) if type(tensordict) is TensorDict else tensordict.get(key, None)
        if (
            action is None
            or type(action) is not _Tensor
            or action.dtype is not dtype
            or action.shape != shape
            or allows is not None
        ):
            return self.codec.from_tensordict(tensordict)
        return decode(action)

    def step(self, env: ArrayEnv, tensordict: TensorDictBase) -> tuple[TensorDict, bool, bool]:
        """Act, and return ``next`` in memory of its own with the library's two bools."""
        action = self.native(tensordict)
        out: dict[Any, Any] = {}
        data: dict[Any, Any] = {}
        for key, shape, dtype in self._next:
            array = out[key] = _empty(shape, dtype)
            data[key] = _from_numpy(array)
        terminated, truncated = env.step_into(action, out)
        for name, shape in self._done_shapes:
            flag = _empty(shape, bool)
            flag[...] = (
                terminated if name == "terminated" else truncated if name == "truncated" else terminated or truncated
            )
            data[name] = _from_numpy(flag)
        if self._flat:
            return build_td(data, _NO_BATCH, self.device), terminated, truncated
        following = self._next_builder(data)
        self._add_done(following, data)
        return following, terminated, truncated

    def reset(self, env: ArrayEnv, root: TensorDict | None, *, env_info: dict[str, Any] | None = None) -> TensorDict:
        """Begin an episode, in a new TensorDict or into ``root``."""
        out = {key: _empty(shape, dtype) for key, shape, dtype in self._obs}
        env.reset_into(out, env.take_seed(), env_info)
        data: dict[Any, Any] = {key: _from_numpy(array) for key, array in out.items()}
        for name, shape in self._done_shapes:
            data[name] = _from_numpy(np.zeros(shape, bool))
        if self._flat:
            if root is None:
                return build_td(data, _NO_BATCH, self.device)
            entries(root).update(data)
            return root
        fresh = self._obs_builder(data)
        self._add_done(fresh, data)
        if root is None:
            return fresh
        root.update(fresh)
        return root

    def _add_done(self, tensordict: TensorDict, data: dict[Any, Any]) -> None:
        target = entries(tensordict)
        for name in self.done_keys:
            target[name] = data[name]

    def attach(self, tensordict: TensorDict, following: TensorDictBase) -> None:
        """Put ``following`` under ``"next"``."""
        if tensordict.is_locked or (tensordict.device is not self.device and tensordict.device is not None):
            tensordict.set("next", following)
        else:
            entries(tensordict)["next"] = following


def _missing(spec: Composite, other: Composite) -> dict[str, Any]:
    """Entries of ``spec`` to add to ``other``; where both have a group, the group holds both."""
    added: dict[str, Any] = {}
    for name, child in spec.items():
        if name in other.keys() and isinstance(child, Composite):
            mine = other[name]
            added[name] = Composite({**dict(mine.items()), **_missing(child, mine)}, shape=mine.shape)
        else:
            added[name] = child
    return added
