"""Info readers: add values of a library's info dict to the data."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import numpy as np
import torch
from tensordict import TensorDictBase

from steppe.envs import as_numbers, wrong_shape
from steppe.errors import ArgumentError
from steppe.specs import Composite, Spec, Unbounded, torch_to_numpy_dtype_dict

__all__ = ["BaseInfoDictReader", "InfoReader", "default_info_dict_reader"]

Array: TypeAlias = np.ndarray[Any, Any]

InfoReader = Callable[[Mapping[str, Any], TensorDictBase], TensorDictBase]


class BaseInfoDictReader(ABC):
    """Base class of readers that declare the specs of the entries that they add.

    >>> import torch
    >>> from steppe import Unbounded, make_env
    >>> from steppe_gym_like import BaseInfoDictReader
    >>> class Health(BaseInfoDictReader):
    ...     @property
    ...     def info_spec(self):
    ...         return {"health": Unbounded((1,))}
    ...     def __call__(self, info, tensordict):
    ...         return tensordict.set("health", torch.tensor([float(info.get("health", 100))]))
    >>> env = make_env("gym:CartPole-v1").set_info_dict_reader(Health())
    >>> env.rollout(2)["next", "health"].flatten()
    tensor([100., 100.])
    """

    @abstractmethod
    def __call__(self, info_dict: Any, tensordict: TensorDictBase) -> TensorDictBase | None:
        """Write values of ``info_dict`` into ``tensordict`` and return it, or None."""

    @property
    @abstractmethod
    def info_spec(self) -> Any:
        """The specs of the entries that it writes, by key: a dict or a Composite."""


class default_info_dict_reader(BaseInfoDictReader):
    """Copy chosen keys of the info dict into the data.

    >>> from steppe import make_env
    >>> from steppe_gym_like import default_info_dict_reader
    >>> env = make_env("gym:HalfCheetah-v5")
    >>> env = env.set_info_dict_reader(default_info_dict_reader(["x_velocity"]))
    >>> env.rollout(3)["next", "x_velocity"].shape
    torch.Size([3])

    Args:
        keys: the keys to copy; None copies all keys that hold numbers in the first infos.
        spec: specs for the keys: a dict, a list in the order of ``keys``, or a Composite. By default ``Unbounded`` of
            the first value's shape and dtype.
        ignore_private: skip keys that begin with an underscore.

    If the info of a step does not have a key, the entry is 0, and the key is added to ``missing``.

    Attributes:
        info_spec: the specs that the reader adds to the observation spec.
        missing: keys that at least one info dict did not have.
    """

    def __init__(
        self,
        keys: list[str] | None = None,
        spec: Mapping[str, Spec] | list[Spec] | Composite | None = None,
        ignore_private: bool = True,
    ) -> None:
        self.keys = None if keys is None else [key for key in keys if not (ignore_private and key.startswith("_"))]
        self.ignore_private = ignore_private
        self.missing: set[str] = set()
        self._info_spec: dict[str, Spec] = {}
        if spec is not None:
            if isinstance(spec, list):
                if self.keys is None or len(spec) != len(self.keys):
                    raise ArgumentError("default_info_dict_reader: a list of specs needs as many keys.")
                spec = dict(zip(self.keys, spec, strict=True))
            self._info_spec = dict(spec.items())
            if self.keys is None:
                self.keys = list(self._info_spec)

    @property
    def info_spec(self) -> Composite:
        """Composite of the keys whose spec is known."""
        return Composite(self._info_spec)

    def reset(self) -> None:
        """Clear the keys and their specs, which the next info defines again."""
        self.keys, self._info_spec = None, {}

    def learn(self, info: Mapping[str, Any]) -> None:
        """Derive the spec of each key from its first value."""
        for key, value in info.items():
            if self.keys is not None and key not in self.keys:
                continue
            if (self.ignore_private and key.startswith("_")) or key in self._info_spec:
                continue
            array = _numeric(value)
            if array is not None:
                self._info_spec[key] = Unbounded(array.shape, dtype=torch.from_numpy(np.atleast_1d(array)).dtype)

    def read(self, info: Mapping[str, Any]) -> dict[str, Array]:
        """Return the values as arrays of their spec's shape and dtype.

        Raises:
            SpecError: a value has another number of elements than its spec.
        """
        out = {}
        for key, spec in self._info_spec.items():
            value = info.get(key)
            assert spec.dtype is not None  # ``learn`` keeps only entries of numbers
            dtype = torch_to_numpy_dtype_dict[spec.dtype]
            if value is None:
                self.missing.add(key)
                out[key] = np.zeros(tuple(spec.shape), dtype)
            else:
                shape = tuple(spec.shape)
                array = as_numbers(key, value, shape).astype(dtype, copy=False)
                if array.size != math.prod(shape):
                    raise wrong_shape(key, shape, value)
                out[key] = array.reshape(shape)
        return out

    def __call__(self, info: Mapping[str, Any], tensordict: TensorDictBase) -> TensorDictBase:
        """Write the values into ``tensordict`` and return it."""
        for key, array in self.read(info).items():
            tensordict.set(key, torch.from_numpy(array.copy()))
        return tensordict


def _numeric(value: Any) -> Array | None:
    if isinstance(value, (bool, int, float, np.number, np.bool_, np.ndarray)):
        array = np.asarray(value)
        if array.dtype.kind in "biuf":
            return array
    return None
