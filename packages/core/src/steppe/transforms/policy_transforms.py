"""transforms_for_policy: the transforms that a recurrent policy needs of its environment."""

from __future__ import annotations

from torch import nn

from steppe.envs import EnvBase
from steppe.transforms.base import Transform
from steppe.transforms.foreign import primers_in
from steppe.transforms.tracking import InitTracker

__all__ = ["transforms_for_policy"]


def transforms_for_policy(policy: object, env: EnvBase) -> list[Transform]:
    """Return the transforms that a policy needs and an environment lacks.

    Args:
        policy: a module. Recurrent parts have a method ``make_tensordict_primer()``, as those of TorchRL; it may return
            a transform of TorchRL with ``primers``, ``random`` and ``default_value``. Other callables need no
            transforms.
        env: the environment that the policy will act in.

    Returns:
        An :class:`InitTracker`, unless the environment has an entry ``"is_init"``, and a :class:`TensorDictPrimer` for
        each primer with entries that the environment does not have.
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
            for primer in primers_in(make()):
                new = set(primer.primers.keys(include_nested=True, leaves_only=True)) - known
                if new:
                    known |= new
                    transforms.append(primer)
    return transforms
