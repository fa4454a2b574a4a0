"""SelfResettingBatch: what the wrappers of Isaac Gym and Isaac Lab share."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from tensordict import TensorDict, TensorDictBase

from steppe.arguments import ignored_argument
from steppe.envs import LibraryWrapper
from steppe.errors import ArgumentError, NotSupported, SpecError
from steppe.specs import Binary, Bounded, Composite, Unbounded
from steppe_gym import space_to_spec

from .random_state import RandomState, fresh_seed

__all__ = ["FLAGS", "SelfResettingBatch", "Values"]

FLAGS = ("done", "terminated", "truncated")

#: Values of a step or reset, ``[n, ...]`` by key.
Values = dict[Any, torch.Tensor]


class SelfResettingBatch(LibraryWrapper):
    """Base class of wrappers of a batch that steps all its rows at once, and resets ended rows by itself.

    All tensors stay on the device of the library. They are copied, because the libraries reuse their memory.

    Args:
        env: the environment of the library.
        n: its number of rows.
        library_device: the device of its tensors.
        action_space: the space of one row.
        categorical_action_encoding: discrete actions are integers instead of one-hot rows.
        device: the device of the data. ``None``: the device of the library.
        **kwargs: for :class:`steppe.envs.EnvBase`.
    """

    #: The name of the library in error texts.
    library = ""

    def __init__(
        self,
        env: Any,
        *,
        n: int,
        library_device: torch.device,
        action_space: Any,
        categorical_action_encoding: bool = False,
        device: torch.device | str | int | None = None,
        **kwargs: Any,
    ) -> None:
        size = kwargs.pop("batch_size", None)
        if size is not None and tuple(torch.Size([size] if isinstance(size, int) else size)) not in ((n,), ()):
            raise ArgumentError(f"The batch size of {n} environments is [{n}], found batch_size={size!r}.")
        if kwargs.pop("convert_actions_to_numpy", False):
            ignored_argument(type(self).__name__, "convert_actions_to_numpy", "actions are tensors of the library")
        super().__init__(device=library_device if device is None else device, batch_size=(n,), **kwargs)
        self.wrap_library(env)
        state = self.__dict__
        state["_library_device"] = library_device
        state["_random"] = RandomState(library_device)
        state["categorical_action_encoding"] = categorical_action_encoding
        action = space_to_spec(action_space, categorical_action_encoding=True)
        # The library takes integers. One-hot rows exist in the data only.
        encoded = space_to_spec(action_space, categorical_action_encoding=categorical_action_encoding)
        if isinstance(action, Composite):
            raise NotSupported(f"{self.library} with actions of several parts is not supported, found {action_space}.")
        state["_one_hot"] = encoded.one_hot_sizes
        self.action_spec = encoded.expand(n, *encoded.shape).to(self.device)
        self.reward_spec = Unbounded(shape=(n, 1)).to(self.device)
        flags = {name: Binary(shape=(n, 1), dtype=torch.bool) for name in FLAGS}
        self.done_spec = Composite(flags, shape=(n,)).to(self.device)

    def declare_observations(self, values: Values) -> None:
        """Set the observation spec from the values of a reset, whose spaces do not always tell the true dtypes."""
        n = self.batch_size[0]
        spec = Composite(shape=(n,))
        for key, value in values.items():
            if value.dtype == torch.bool:
                leaf: Any = Binary(shape=value.shape, dtype=torch.bool)
            elif value.dtype == torch.uint8:
                leaf = Bounded(0, 255, shape=value.shape, dtype=torch.uint8)
            else:
                leaf = Unbounded(shape=value.shape, dtype=value.dtype)
            spec[key] = leaf
        self.observation_spec = spec.to(self.device)

    def no_rows_reason(self) -> str | None:
        """Return why the environments are not stepped on rows of arrays."""
        return "its tensors stay on the device of the simulation."

    # -- values of the library ------------------------------------------------------------------------------------

    def read(self, observation: Any) -> Values:
        """Return copies of the tensors of an observation, by key.

        Raises:
            SpecError: a tensor does not have one row for each environment.
        """
        n = self.batch_size[0]
        values = {}
        for key, value in _leaves(observation, ()):
            if value.shape[:1] != (n,):
                raise SpecError(
                    f"{self.library} returned the observation {key!r} of shape {tuple(value.shape)}, expected one row "
                    f"for each of {n} environments."
                )
            values[key] = value.detach().clone()
        return values

    def action_of(self, tensordict: TensorDictBase) -> torch.Tensor:
        """Return the action in the data as the library takes it, ``[n, ...]``."""
        if tensordict.get("_step", None) is not None:
            raise NotSupported(
                f"{self.library} steps all its environments at once: there is no partial step. Step all of them and "
                "ignore the other rows."
            )
        action: torch.Tensor = tensordict.get("action")
        sizes = self._one_hot
        if sizes is not None:
            rows = action.shape[:-1] if len(sizes) == 1 else action.shape[:1]
            flat = action.reshape(*rows, math.prod(action.shape[len(rows) :]))
            parts = torch.split(flat, sizes, -1)
            action = torch.stack([part.to(torch.uint8).argmax(-1) for part in parts], -1)
            action = action[..., 0] if len(sizes) == 1 else action
        return action.to(self._library_device)

    def data_of(
        self, values: Values, *, terminated: torch.Tensor | None = None, truncated: torch.Tensor | None = None
    ) -> TensorDictBase:
        """Return a TensorDict of values and done entries.

        Args:
            values: ``[n, ...]`` by key.
            terminated: ``[n]`` bool. ``None``: all False.
            truncated: ``[n]`` bool. ``None``: all False.
        """
        n = self.batch_size[0]
        zeros = torch.zeros(n, dtype=torch.bool, device=self._library_device)
        terminated = zeros if terminated is None else terminated
        truncated = zeros if truncated is None else truncated
        data = TensorDict({}, batch_size=self.batch_size, device=self.device)
        for key, value in values.items():
            data.set(key, value)
        flags = (terminated | truncated, terminated.clone(), truncated.clone())
        for name, flag in zip(FLAGS, flags, strict=True):
            data.set(name, flag.unsqueeze(-1))
        return data

    def mask_of(self, tensordict: TensorDictBase | None) -> torch.Tensor | None:
        """Return the rows that a reset names, ``[n]`` bool on the device of the library; None for all rows."""
        mask = None if tensordict is None else tensordict.get("_reset", None)
        return None if mask is None else mask.reshape(self.batch_size[0]).to(self._library_device)

    # -- the contract ---------------------------------------------------------------------------------------------

    @abstractmethod
    def begin(self, mask: torch.Tensor | None) -> Values:
        """Begin episodes in the rows of a mask, or in all, and return observations of all rows.

        Values of other rows are not used.
        """

    def _reset(self, tensordict: TensorDictBase | None = None, **kwargs: Any) -> TensorDictBase:
        if kwargs:
            raise TypeError(
                f"{type(self).__name__}.reset does not take {sorted(kwargs)}. To seed it, call env.set_seed(seed)."
            )
        return self.data_of(self.begin(self.mask_of(tensordict)))

    def _set_seed(self, seed: int | None) -> None:
        self._random.seed(fresh_seed() if seed is None else int(seed))

    def __getstate__(self) -> dict[str, Any]:
        raise NotSupported(f"A simulation of {self.library} cannot be pickled: pass a factory, and make it there.")


def _leaves(value: Any, path: tuple[str, ...]) -> Iterator[tuple[Any, torch.Tensor]]:
    """Yield the tensors of nested dicts by key; a single tensor has the key ``"observation"``."""
    if isinstance(value, Mapping):
        for name, inner in value.items():
            yield from _leaves(inner, (*path, name))
        return
    if not isinstance(value, torch.Tensor):
        # Isaac Lab 3 returns arrays of Warp, with a view as a tensor.
        view = getattr(value, "torch", None)
        value = view if isinstance(view, torch.Tensor) else torch.as_tensor(value, device="cpu")
    yield (path if len(path) > 1 else path[0] if path else "observation"), value
