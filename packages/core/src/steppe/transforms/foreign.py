"""Transforms of TorchRL: primers that its recurrent modules make are taken over, all others are refused by name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from steppe.errors import SpecError
from steppe.specs import Composite, Spec, Unbounded
from steppe.transforms.base import Transform
from steppe.transforms.primer import TensorDictPrimer

__all__ = ["adopted", "primers_in"]


def adopted(transform: Any) -> TensorDictPrimer | None:
    """The primer that an object of TorchRL stands for; None where it is no transform of TorchRL.

    Raises:
        SpecError: it is another transform of TorchRL's. Called as a function it would not do what it does there.
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
                f"This {name} is TorchRL's, and works in its own environments only: from steppe import {name}."
            )
    primers = list(primers_in(parts))
    if len(primers) == 1:
        return primers[0]
    if not primers or any(primer.random for primer in primers):
        raise SpecError("Append the primers of a Compose of TorchRL one by one.")
    entries = Composite({}, shape=())
    defaults: dict[Any, Any] = {}
    for primer in primers:
        for key, leaf in primer.primers.items(include_nested=True, leaves_only=True):
            entries.set(key, leaf)
            value = primer.default_value
            defaults[key] = value.get(key, 0.0) if isinstance(value, Mapping) else value
    return TensorDictPrimer(entries, default_value=defaults, expand_specs=True)


def primers_in(made: Any) -> Iterator[TensorDictPrimer]:
    """The primers in what ``make_tensordict_primer()`` of a module returned: transforms, ours or TorchRL's, or None."""
    if isinstance(made, TensorDictPrimer):
        yield made
    elif isinstance(made, Transform):
        # Those in a Compose; others have nothing to go over.
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
    """The entries of another library's spec: what is known of them is shape, dtype and device."""
    spec = Composite({}, shape=())
    for key, leaf in primers.items(True, True):
        own = leaf if isinstance(leaf, Spec) else Unbounded(tuple(leaf.shape), device=leaf.device, dtype=leaf.dtype)
        spec.set(key, own)
    return spec
