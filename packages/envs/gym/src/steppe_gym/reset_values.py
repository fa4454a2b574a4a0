"""Values that a reset takes, ``env_info``: options of the library's reset, or attributes of the environment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from steppe.envs import set_in_wrappers
from steppe.errors import SpecError
from steppe.specs import CPU, Composite, Unbounded
from steppe_gym.attribute_lookup import find_attribute

__all__ = ["AttributeValues", "spec_of_values"]

_MISSING = object()


def spec_of_values(values: Mapping[str, Any]) -> Composite:
    """Return the spec of values, by example.

    Args:
        values: a number or an array for each name. Python floats get torch's default dtype.

    Raises:
        SpecError: a value is not a number or an array of numbers.
    """
    spec = Composite({})
    for name, value in values.items():
        try:
            tensor = torch.as_tensor(value, device=CPU)
        except (TypeError, ValueError, RuntimeError):
            raise SpecError(f"env_info[{name!r}] must be a number or an array, found {value!r}.") from None
        spec[name] = Unbounded(tuple(tensor.shape), dtype=tensor.dtype)
    return spec


class AttributeValues:
    """Attributes of an environment of the library that each reset sets.

    Args:
        env: the environment, which may be wrapped.
        names: the attributes, which the environment or a wrapper inside it must have already.

    Attributes:
        examples: their current values.

    Raises:
        SpecError: the environment has no such attribute.
    """

    def __init__(self, env: Any, names: Sequence[str]) -> None:
        self.examples = {name: find_attribute(env, name, _MISSING) for name in names}
        missing = [name for name, value in self.examples.items() if value is _MISSING]
        if missing:
            numbers = sorted(
                name
                for name, value in vars(env.unwrapped).items()
                if not name.startswith("_") and isinstance(value, (int, float, np.ndarray))
            )
            raise SpecError(
                f"env_info_to='attributes': {env!r} has no attribute {missing[0]!r}. Numbers that it has: {numbers}."
            )
        self._env = env

    def set(self, values: Mapping[str, Any]) -> None:
        """Set the attributes to values, in the types that they have now."""
        for name, value in values.items():
            example = self.examples[name]
            if isinstance(example, np.ndarray):
                value = np.array(value, dtype=example.dtype)
            elif isinstance(example, (bool, int, float)):
                value = type(example)(value)
            set_in_wrappers(self._env, name, value)
