"""transforms_for_policy: the transforms that a recurrent policy needs, and the primers of TorchRL's modules."""

from __future__ import annotations

from typing import Any

from torch import nn

import steppe.transforms
from steppe.envs import EnvBase
from steppe.errors import SpecError
from steppe.transforms.base import Transform
from steppe.transforms.tracking import InitTracker

__all__ = ["adopted", "transforms_for_policy"]


def transforms_for_policy(policy: object, env: EnvBase) -> list[Transform]:
    """Return the transforms that a policy needs and an environment lacks.

    Args:
        policy: a module. Recurrent parts have a method ``make_tensordict_primer()``, as in TorchRL; it may return
            a transform of TorchRL with ``primers``, ``random`` and ``default_value``. Other callables need no
            transforms.
        env: the environment that the policy will act in.

    Returns:
        An :class:`InitTracker`, unless the environment has an entry ``"is_init"``, and a ``TensorDictPrimer`` of
        steppe-time for each primer with entries that the environment does not have.

    Raises:
        TransformNotFound: the policy makes primers, and steppe-time is not installed.
    """
    if not isinstance(policy, nn.Module):
        return []
    known = set(env.observation_keys) | set(env.state_keys)
    transforms: list[Transform] = []
    if not any((key if isinstance(key, str) else key[-1]) == "is_init" for key in known):
        transforms.append(InitTracker())
    for part in policy.modules():
        make = getattr(part, "make_tensordict_primer", None)
        if callable(make):
            for primer in _primers_in(make()):
                new = set(primer.primers.keys(include_nested=True, leaves_only=True)) - known
                if new:
                    known |= new
                    transforms.append(primer)
    return transforms


def adopted(transform: Any) -> list[Any] | None:
    """Convert a primer of TorchRL, or each of a Compose; return None for an object that is no transform of TorchRL.

    Raises:
        SpecError: the object is another transform of TorchRL. It would not work if it were called as a function.
    """
    if not any(
        cls.__name__ == "Transform" and cls.__module__.startswith("torchrl.") for cls in type(transform).__mro__
    ):
        return None
    parts = list(transform) if type(transform).__name__ == "Compose" else [transform]
    for part in parts:
        name = type(part).__name__
        if name != "TensorDictPrimer":
            raise SpecError(
                f"This {name} is a class of TorchRL and works in its environments only. Use: from steppe import {name}."
            )
    return _primers_in(parts)


def _primers_in(made: Any) -> list[Any]:
    installed: Any = steppe.transforms  # the class is found by name, in steppe-time
    primers: list[Any] = installed.TensorDictPrimer.found_in(made)
    return primers
