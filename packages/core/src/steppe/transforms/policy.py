"""Which transforms a policy needs of its environment: where episodes begin, and entries to keep its memory in."""

from __future__ import annotations

from typing import Any

from torch import nn

from steppe.envs import EnvBase
from steppe.transforms.base import Transform
from steppe.transforms.foreign import primers_in
from steppe.transforms.tracking import InitTracker

__all__ = ["transforms_for_policy"]


def transforms_for_policy(policy: Any, env: EnvBase) -> list[Transform]:
    """Return what an environment lacks for a policy.

    Args:
        policy: a module. Of its parts, those that keep something from step to step have a method
            ``make_tensordict_primer()``, as the recurrent modules of TorchRL do; what it returns may be a transform of
            another library that has ``primers``, ``random`` and ``default_value``. Any other callable needs nothing.
        env: the environment that it will act in.

    Returns:
        An :class:`InitTracker`, unless an entry of the environment is called ``"is_init"``, and a
        :class:`TensorDictPrimer` for each primer with an entry that the environment does not have.
    """
    if not isinstance(policy, nn.Module):
        return []
    known = set(env.observation_keys) | set(env.state_keys)
    found: list[Transform] = []
    if not any((key if isinstance(key, str) else key[-1]) == "is_init" for key in known):
        found.append(InitTracker())
    for part in policy.modules():
        make = getattr(part, "make_tensordict_primer", None)
        if callable(make):
            for primer in primers_in(make()):
                new = set(primer.primers.keys(include_nested=True, leaves_only=True)) - known
                if new:
                    known |= new
                    found.append(primer)
    return found
