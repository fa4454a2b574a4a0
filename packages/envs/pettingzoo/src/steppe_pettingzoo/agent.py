"""Agent: the specs of one agent, how its values are written into arrays, and its actions read from data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from tensordict import TensorDict, TensorDictBase

from steppe.envs import ActionCodec
from steppe.errors import NotSupported
from steppe.specs import Binary, Categorical, Composite, Spec, Unbounded
from steppe_gym import SpaceReader, action_decoder, space_to_spec

__all__ = ["Agent", "Key"]

Key = tuple[str, ...]

_MASK = "action_mask"


class Agent:
    """One agent of an environment.

    Args:
        name: as the library calls it.
        observation_space: its space; an entry ``action_mask`` of a Dict is the mask of its actions.
        action_space: its space.
        info: its first info, whose numbers become entries.
        categorical: discrete actions as numbers, not one-hot rows.
        use_mask: whether there is an entry that says if it acts.
        device: of the specs.

    Attributes:
        fields: ``{key: (shape, dtype)}`` of what it observes, below its group.
        has_action_mask: whether the library says which actions there are.
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
        device: Any,
    ) -> None:
        from gymnasium import spaces

        self.name = name
        named = isinstance(observation_space, spaces.Dict)
        masked = named and _MASK in observation_space.spaces
        self._in_observation = masked
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
            raise NotSupported(f"Observations of agent {name!r} have no fixed size: {observation_space}.")
        number = type(self._action) is Categorical and not self._action.shape and self._action.dtype is torch.int64
        #: How many actions there are to choose from, where an action is a number.
        self.choices = int(self._action.n) if number and isinstance(self._action, Categorical) else 0
        entries: dict[str, Spec] = {"observation": observation}
        if self.has_action_mask:
            if not isinstance(action_space, spaces.Discrete):
                raise NotSupported(f"The actions of agent {name!r} have a mask, and are not Discrete: {action_space}.")
            self.n_actions = int(action_space.n)
            entries[_MASK] = Binary(shape=(self.n_actions,), dtype=torch.bool, device=device)
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
        """Work out how a value of the library is written into data, and how an action in data becomes one of it."""
        name, (observation_space, action_space) = self.name, self._spaces
        self.reader = SpaceReader(observation_space, self._observation, prefix=self._prefix)
        # Errors name the agent.
        self._codec = ActionCodec(Composite({name: self._action}))
        # An action that is a single tensor is decoded without a TensorDict around it.
        leaf = self._codec.keys == [name]
        self._one = (self._codec.rules[name].fit, self._codec.decoders[name].one) if leaf else None
        self._decode = action_decoder(action_space, self._action, name)

    def __getstate__(self) -> dict[str, Any]:
        compiled = ("reader", "_codec", "_one", "_decode")
        return {name: value for name, value in vars(self).items() if name not in compiled}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._compile()

    def write(self, observation: Any, info: Mapping[str, Any], out: dict[Any, Any], *, acts: bool) -> None:
        """Write what the agent observes into numpy views by key; it is alive.

        Args:
            observation: a value of its space.
            info: its info; what it lacks stays zero.
            out: the views.
            acts: whether it acts next; otherwise every action is allowed, as none is taken.
        """
        self.reader.write(observation, out)
        if self.has_action_mask:
            mask = observation[_MASK] if self._in_observation else info.get(_MASK)
            out[(_MASK,)][...] = mask if acts and mask is not None else True
        for key in self._infos:
            if key in info:
                out[("info", str(key))][...] = info[key]

    def native_action(self, action: torch.Tensor | TensorDictBase | int) -> Any:
        """The action as the library takes it.

        Args:
            action: as ``action_spec["action"]`` has it, on the CPU; or its number.

        Raises:
            ActionError: it does not fit.
        """
        if type(action) is int:
            if 0 <= action < self.choices:
                return action if self._decode is None else self._decode(action)
            action = torch.tensor(action, device="cpu")  # is refused like any other
        if self._one is None:
            native = self._codec.from_tensordict(TensorDict({self.name: action}))
        else:
            fit, decode = self._one
            native = decode(fit(action))
        return native if self._decode is None else self._decode(native)


def _is_number(value: Any) -> bool:
    try:
        return bool(np.asarray(value).dtype.kind in "biuf")
    except ValueError:  # lists of different lengths
        return False


def _torch_dtype(value: np.ndarray[Any, Any]) -> torch.dtype:
    return torch.from_numpy(np.zeros((), value.dtype)).dtype


def _tuple(key: Any) -> Key:
    return key if isinstance(key, tuple) else (key,)
