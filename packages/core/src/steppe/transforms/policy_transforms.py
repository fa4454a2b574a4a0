"""transforms_for_policy: the transforms that a recurrent policy needs, and the primers of TorchRL's modules."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from torch import nn

from steppe.envs import EnvBase
from steppe.errors import SpecError
from steppe.specs import Composite, Spec, Unbounded
from steppe.transforms.base import Transform
from steppe.transforms.primer import TensorDictPrimer
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
            for primer in _primers_in(make()):
                new = set(primer.primers.keys(include_nested=True, leaves_only=True)) - known
                if new:
                    known |= new
                    transforms.append(primer)
    return transforms


def adopted(transform: Any) -> list[TensorDictPrimer] | None:
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
    return list(_primers_in(parts))


def _primers_in(made: Any) -> Iterator[TensorDictPrimer]:
    """Yield the primers in the result of ``make_tensordict_primer()``.

    Args:
        made: transforms of steppe or TorchRL, or None.
    """
    if isinstance(made, TensorDictPrimer):
        yield made
    elif hasattr(made, "primers"):
        yield _converted(made)
    elif isinstance(made, Iterable):  # a list, or a Compose of either library
        for part in made:
            yield from _primers_in(part)


def _converted(primer: Any) -> TensorDictPrimer:
    """Return a primer of TorchRL as one of steppe."""
    random = getattr(primer, "random", None) or None
    value = None if random else getattr(primer, "default_value", None)
    specs = _as_spec(primer.primers)
    return TensorDictPrimer(specs, random=random, default_value=value, expand_specs=True)


def _as_spec(primers: Any) -> Composite:
    """Return the spec of another library as one of steppe: unbounded, of the same shapes, dtypes and devices."""
    spec = Composite({}, shape=())
    for key, leaf in primers.items(True, True):
        spec_of_leaf = (
            leaf if isinstance(leaf, Spec) else Unbounded(tuple(leaf.shape), device=leaf.device, dtype=leaf.dtype)
        )
        spec.set(key, spec_of_leaf)
    return spec
