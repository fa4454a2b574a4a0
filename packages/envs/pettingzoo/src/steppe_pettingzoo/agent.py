"""Agent: specs, observations and actions of one agent."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from tensordict import TensorDict, TensorDictBase

from steppe.envs import ActionCodec, as_numbers
from steppe.errors import NotSupported
from steppe.specs import Binary, Categorical, Composite, Spec, Unbounded
from steppe_gym import SpaceReader, action_decoder, space_to_spec

__all__ = ["Agent", "Key"]

Key = tuple[str, ...]

_MASK = "action_mask"


class Agent:
    """One agent of an environment.

    Args:
        name: the name of the agent in the library.
        observation_space: its observation space. An entry ``action_mask`` of a Dict is the mask of its actions.
        action_space: its action space.
        info: the info of a reset. Its numbers become entries.
        categorical: discrete actions are integers instead of one-hot vectors.
        use_mask: whether there is an entry ``"mask"``, which says whether the agent acts.
        device: device of the specs.

    Attributes:
        fields: ``{key: (shape, dtype)}`` of its observation entries, relative to its group.
        has_action_mask: whether the library provides an action mask.
    """

    def __init__(
        self,
        name: str,
        observation_space: Any,
        action_space: Any,
        info: Mapping[str, Any],
        *,
        categorical: bool,
        use_mask: bool,
        device: torch.device | None,
    ) -> None:
        from gymnasium import spaces

        self.name, self.use_mask = name, use_mask
        named = isinstance(observation_space, spaces.Dict)
        masked = named and _MASK in observation_space.spaces
        self._mask_in_observation = masked
        if masked:
            others = {key: space for key, space in observation_space.spaces.items() if key != _MASK}
            observation_space = spaces.Dict(others)
        self.has_action_mask = masked or _MASK in info
        observation = space_to_spec(observation_space, device=device)
        self._spaces = observation_space, action_space
        self._observation, self._prefix = observation, ("observation",) if named else ()
        self._action = space_to_spec(action_space, categorical_action_encoding=categorical, device=device)
        self._compile()
        if not self.reader.fixed:
            raise NotSupported(
                f"The observations of agent {name!r} have no fixed shape, found the space {observation_space}."
            )
        number = type(self._action) is Categorical and not self._action.shape and self._action.dtype is torch.int64
        #: The number of actions if an action is one integer, otherwise 0.
        self.choices = int(self._action.n) if number and isinstance(self._action, Categorical) else 0
        entries: dict[str, Spec] = {"observation": observation}
        if self.has_action_mask:
            if not isinstance(action_space, spaces.Discrete):
                raise NotSupported(
                    f"An action mask needs a Discrete action space. Agent {name!r} has a mask, and the space "
                    f"{action_space}."
                )
            entries[_MASK] = Binary(shape=(int(action_space.n),), dtype=torch.bool, device=device)
        if use_mask:
            entries["mask"] = Binary(shape=(), dtype=torch.bool, device=device)
        self._infos = {key: np.asarray(value) for key, value in info.items() if key != _MASK and _is_number(value)}
        if self._infos:
            leaves = {
                str(key): Unbounded(shape=value.shape, dtype=_torch_dtype(value), device=device)
                for key, value in self._infos.items()
            }
            entries["info"] = Composite(leaves, device=device)
        self.observation_spec = Composite(entries, device=device)
        self.action_spec = Composite({"action": self._action}, device=device)
        self.fields = {
            _tuple(key): (tuple(leaf.shape), torch.empty(0, dtype=leaf.dtype, device="cpu").numpy().dtype)
            for key, leaf in self.observation_spec.items(include_nested=True, leaves_only=True)
        }

    def _compile(self) -> None:
        """Compile the functions that write observations into rows and decode actions."""
        name, (observation_space, action_space) = self.name, self._spaces
        self.reader = SpaceReader(observation_space, self._observation, prefix=self._prefix)
        # The key is the name of the agent, so that errors name it.
        self._codec = ActionCodec(Composite({name: self._action}))
        # An action that is a single tensor is decoded without a TensorDict around it.
        leaf = self._codec.keys == [name]
        self._leaf_decoder = (self._codec.rules[name].fit, self._codec.decoders[name].one) if leaf else None
        self._to_library = action_decoder(action_space, self._action, name)

    def __getstate__(self) -> dict[str, object]:
        compiled = ("reader", "_codec", "_leaf_decoder", "_to_library")
        return {name: value for name, value in vars(self).items() if name not in compiled}

    def __setstate__(self, state: dict[str, object]) -> None:
        vars(self).update(state)
        self._compile()

    def write(self, observation: Any, info: Mapping[str, Any], out: dict[Any, np.ndarray], *, acts: bool) -> None:
        """Write observation, masks and info of an agent that is alive.

        The values are written into numpy views by key.

        Args:
            observation: a value of its observation space.
            info: its info. Entries that are missing are zero.
            out: the views to write into.
            acts: whether the agent acts next. If not, the action mask allows every action.
        """
        self.reader.write(observation, out)
        if self.has_action_mask:
            mask = observation[_MASK] if self._mask_in_observation else info.get(_MASK)
            out[(_MASK,)][...] = mask if acts and mask is not None else True
        for key in self._infos:
            value = info.get(key)
            out[("info", str(key))][...] = 0 if value is None else as_numbers(("info", str(key)), value)
        if self.use_mask:
            out[("mask",)][...] = acts

    def write_ended(self, out: dict[Any, np.ndarray]) -> None:
        """Write the entries of an agent that has ended: zeros, and an action mask that allows every action."""
        for key in self.fields:
            out[key][...] = key == (_MASK,)

    def library_action(self, action: torch.Tensor | TensorDictBase | int) -> Any:
        """Validate an action, and convert it to the format of the library.

        Args:
            action: an action of ``action_spec["action"]`` on the CPU, or the index of the action.

        Raises:
            ActionError: the action does not fit the spec.
        """
        if type(action) is int:
            if 0 <= action < self.choices:
                return action if self._to_library is None else self._to_library(action)
            action = torch.tensor(action, device="cpu")  # out of range: the rule below raises the error
        if self._leaf_decoder is None:
            decoded = self._codec.from_tensordict(TensorDict({self.name: action}))
        else:
            fit, decode = self._leaf_decoder
            decoded = decode(fit(action))
        return decoded if self._to_library is None else self._to_library(decoded)


def _is_number(value: object) -> bool:
    try:
        return bool(np.asarray(value).dtype.kind in "biuf")
    except ValueError:  # lists of different lengths
        return False


def _torch_dtype(value: np.ndarray) -> torch.dtype:
    return torch.from_numpy(np.zeros((), value.dtype)).dtype


def _tuple(key: Any) -> Key:
    return key if isinstance(key, tuple) else (key,)
