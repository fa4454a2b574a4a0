"""Primers of TorchRL, as its recurrent modules make them, converted to those of steppe."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from steppe.errors import SpecError
from steppe.specs import Composite, Spec, Unbounded
from steppe.transforms.base import Transform
from steppe.transforms.primer import TensorDictPrimer

__all__ = ["adopted", "primers_in"]


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
    return list(primers_in(parts))


def primers_in(made: Any) -> Iterator[TensorDictPrimer]:
    """Yield the primers in the result of ``make_tensordict_primer()``: transforms of steppe or TorchRL, or None."""
    if isinstance(made, TensorDictPrimer):
        yield made
    elif isinstance(made, Transform):
        # Only a Compose has parts.
        for part in getattr(made, "transforms", ()):
            yield from primers_in(part)
    elif hasattr(made, "primers"):
        random = getattr(made, "random", None) or None
        yield TensorDictPrimer(
            _as_spec(made.primers),
            random=random,
            default_value=None if random else getattr(made, "default_value", None),
            expand_specs=True,
        )
    elif made is not None:
        for part in made:
            yield from primers_in(part)


def _as_spec(primers: Any) -> Composite:
    """Return the spec of another library as one of steppe: unbounded, of the same shapes, dtypes and devices."""
    spec = Composite({}, shape=())
    for key, leaf in primers.items(True, True):
        own = leaf if isinstance(leaf, Spec) else Unbounded(tuple(leaf.shape), device=leaf.device, dtype=leaf.dtype)
        spec.set(key, own)
    return spec
