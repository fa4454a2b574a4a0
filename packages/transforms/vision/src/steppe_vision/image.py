"""ImageTransform: the base class of transforms of images, with their keys and specs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import torch

from steppe.errors import SpecError
from steppe.specs import Bounded, Composite, Spec, Unbounded
from steppe.transforms import ObservationTransform

__all__ = ["ImageTransform", "channels_last", "size_of"]


class ImageTransform(ObservationTransform):
    """Base of transforms of single images, without memory.

    A subclass writes ``_apply_transform`` for images ``[*, C, H, W]`` with any leading dimensions, and ``shared_key``
    (without which the environments of a batch do not share a call). An element of the result must not become smaller
    where an element of the image becomes larger: then the bounds of the result are the results of the bounds. One that
    is not so writes ``bounds``.

    Args:
        in_keys: images to read; by default ``"pixels"``, or ``"pixels"`` of each group of agents.
        out_keys: where the results go, one for each; by default in place of the images.

    Raises:
        SpecError: there are no ``in_keys``, and the environment has no ``"pixels"``; or one of ``in_keys`` is no
            observation of tensors.
    """

    keeps_nothing = True
    default_names: ClassVar[tuple[str, ...]] = ("pixels",)

    def __init__(self, in_keys: Any = None, out_keys: Any = None) -> None:
        super().__init__(in_keys, out_keys)

    def bounds(self, low: torch.Tensor, high: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor] | None:
        """Return the bounds of the result for an image with bounds ``low`` and ``high``; None for no bounds."""
        return self._apply_transform(low), self._apply_transform(high)

    def transform_observation_spec(self, observation_spec: Composite) -> Composite:
        for key, out_key in zip(self.in_keys, self.out_keys, strict=True):
            leaf = observation_spec.get(key, None)
            if leaf is None:
                if self.missing_tolerance:
                    continue
                keys = list(observation_spec.keys(include_nested=True, leaves_only=True))
                raise SpecError(f"{self._name}: the environment has no observation {key!r}. It has {keys}.")
            observation_spec.set(out_key, self._leaf(key, leaf))
        return observation_spec

    def _leaf(self, key: Any, leaf: Spec) -> Spec:
        """The spec of the result."""
        if not isinstance(leaf, Bounded) and (leaf.dtype is None or isinstance(leaf, Composite)):
            raise SpecError(f"{self._name}: {key!r} is no image: it has the spec {leaf}.")
        try:
            if isinstance(leaf, Bounded):
                bounds = self.bounds(leaf.space.low, leaf.space.high)
                # Infinite bounds leave NaN where something is summed up.
                if bounds is not None and not any(bool(bound.isnan().any()) for bound in bounds):
                    low, high = bounds
                    return Bounded(low, high, low.shape, leaf.device, low.dtype)
            result = self._apply_transform(leaf.zero())
        except SpecError as error:
            raise SpecError(f"{error} This is the observation {key!r}.") from None
        return Unbounded(result.shape, leaf.device, result.dtype)

    @property
    def _name(self) -> str:
        return type(self).__name__

    def _check(self, image: torch.Tensor, *, layout: str = "C, H, W") -> None:
        """Raise where there are too few dimensions for an image, or the channels are on the other side."""
        if image.ndim < len(layout.split(",")):
            raise SpecError(f"{self._name} takes images [*, {layout}], found the shape {tuple(image.shape)}.")
        if image.ndim > 2 and layout != "H, W, C" and channels_last(image.shape):
            raise SpecError(
                f"{self._name} takes images [*, {layout}], found the shape {tuple(image.shape)}. Channels come first: "
                "put ToTensorImage() before it."
            )


def channels_last(shape: Sequence[int]) -> bool:
    """Whether an image of this shape has its channels at the end: it would be 1, 3 or 4 pixels wide otherwise.

    Shapes that may be either are none: ``[3, 3, 3]``, square ones such as ``[64, 1, 1]``.
    """
    first, middle, last = shape[-3:]
    return last in (1, 3, 4) and first not in (1, 3, last) and middle != last


def size_of(owner: str, **sizes: Any) -> list[int]:
    """Sizes as whole numbers.

    Args:
        owner: the class whose arguments they are.
        **sizes: numbers of pixels by name.

    Raises:
        SpecError: one is no whole number, or below 1.
    """
    for name, size in sizes.items():
        if isinstance(size, bool) or not isinstance(size, (int, float)) or size != int(size) or size < 1:
            raise SpecError(f"{owner}: {name} is a number of pixels, 1 or more, found {size!r}.")
    return [int(size) for size in sizes.values()]
