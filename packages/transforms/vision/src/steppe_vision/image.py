"""ImageTransform: the base class of transforms of images."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import torch
from tensordict import NestedKey

from steppe.errors import SpecError
from steppe.specs import Bounded, Composite, Spec, Unbounded
from steppe.transforms import ObservationTransform

__all__ = ["ImageTransform", "channels_last", "size_of"]


class ImageTransform(ObservationTransform):
    """Base class of transforms of single images, without state.

    A subclass implements ``_apply_transform`` for images ``[*, C, H, W]`` with any leading dimensions. If it also
    overrides ``shared_key``, the environments of a batch share one call.

    The bounds of the result are computed by applying the transform to the bounds of the image. If the transform is not
    monotonic (a larger pixel can give a smaller result), override ``bounds``.

    >>> import torch
    >>> from steppe import Bounded, TransformedEnv
    >>> from steppe_testing import DataEnv
    >>> from steppe_vision import ImageTransform
    >>> class Brighten(ImageTransform):
    ...     def _apply_transform(self, pixels):
    ...         return (pixels * 1.5).clamp(max=1.0)
    >>> env = TransformedEnv(DataEnv({"pixels": Bounded(0.0, 0.5, shape=(3, 8, 8))}), Brighten())
    >>> env.observation_spec["pixels"].space.high.max()
    tensor(0.7500)

    Args:
        in_keys: images to read. Default: ``"pixels"``, or ``"pixels"`` of each group of agents.
        out_keys: keys to write, as many as ``in_keys``. Default: ``in_keys``.

    Raises:
        SpecError: no ``in_keys`` were passed and the environment has no ``"pixels"``, or one of ``in_keys`` is not an
            observation with a dtype.
    """

    keeps_nothing = True
    default_names: ClassVar[tuple[str, ...]] = ("pixels",)

    def __init__(
        self,
        in_keys: NestedKey | Sequence[NestedKey] | None = None,
        out_keys: NestedKey | Sequence[NestedKey] | None = None,
    ) -> None:
        super().__init__(in_keys, out_keys)

    def bounds(self, low: torch.Tensor, high: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor] | None:
        """Return the bounds of the result; None for no bounds.

        ``low`` and ``high`` are the bounds of the image.
        """
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
        """Return the spec of the result."""
        if not isinstance(leaf, Bounded) and (leaf.dtype is None or isinstance(leaf, Composite)):
            raise SpecError(f"{self._name}: {key!r} is not an image; its spec is {leaf}.")
        try:
            if isinstance(leaf, Bounded):
                bounds = self.bounds(leaf.space.low, leaf.space.high)
                # Sums of infinite bounds may be NaN; then the result has no bounds.
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
        """Raise an error if an image has too few dimensions, or its channels last."""
        if image.ndim < len(layout.split(",")):
            raise SpecError(f"{self._name} takes images [*, {layout}], found the shape {tuple(image.shape)}.")
        if image.ndim > 2 and layout != "H, W, C" and channels_last(image.shape):
            raise SpecError(
                f"{self._name} takes images [*, {layout}], found the shape {tuple(image.shape)}. Channels come first: "
                "put ToTensorImage() before it."
            )


def channels_last(shape: Sequence[int]) -> bool:
    """Whether an image of this shape has its channels last.

    True if the image would otherwise be 1, 3 or 4 pixels wide. False for ambiguous shapes, such as ``[3, 3, 3]`` and
    ``[64, 1, 1]``.
    """
    first, middle, last = shape[-3:]
    return last in (1, 3, 4) and first not in (1, 3, last) and middle != last


def size_of(owner: str, **sizes: Any) -> list[int]:
    """Return sizes as integers.

    Args:
        owner: name of the class, for the error.
        **sizes: number of pixels of each argument.

    Raises:
        SpecError: a size is not a whole number >= 1.
    """
    for name, size in sizes.items():
        if isinstance(size, bool) or not isinstance(size, (int, float)) or size != int(size) or size < 1:
            raise SpecError(f"{owner}: {name} must be a number of pixels >= 1, found {size!r}.")
    return [int(size) for size in sizes.values()]
