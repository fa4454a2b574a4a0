"""ToTensorImage: convert images to the layout and range of torch's layers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from tensordict import NestedKey

from steppe.errors import SpecError
from steppe.specs import Bounded, Spec
from steppe_vision.image import ImageTransform

__all__ = ["ToTensorImage"]


class ToTensorImage(ImageTransform):
    """Move the channels of images first, and scale 0..255 to 0..1.

    ``[*, H, W, C]`` becomes ``[*, C, H, W]``, floats. If ``dtype`` is an integer dtype such as ``torch.uint8``, values
    are not scaled, because integers cannot represent fractions.

    >>> from steppe import ToTensorImage, TransformedEnv, make_env
    >>> env = TransformedEnv(make_env("gym:CartPole-v1", from_pixels=True), ToTensorImage())
    >>> env.observation_spec["pixels"].shape
    torch.Size([3, 400, 600])

    Args:
        from_int: divide by 255. Default: only if integers become floats.
        unsqueeze: add a dimension of size 1 in front of the channels: ``[*, 1, C, H, W]``.
        dtype: dtype of the result. Default: torch's default dtype.
        in_keys: images to read. Default: ``"pixels"``, or ``"pixels"`` of each group of agents.
        out_keys: keys to write, as many as ``in_keys``. Default: ``in_keys``.
        shape_tolerant: if the last dimension is not 3, keep the order of the dimensions.

    Raises:
        SpecError: an image has fewer than three dimensions or has its channels first, ``from_int`` is True with an
            integer dtype, or floats from 0 to 1 would become integers.
    """

    def __init__(
        self,
        from_int: bool | None = None,
        unsqueeze: bool = False,
        dtype: torch.dtype | None = None,
        *,
        in_keys: NestedKey | Sequence[NestedKey] | None = None,
        out_keys: NestedKey | Sequence[NestedKey] | None = None,
        shape_tolerant: bool = False,
    ) -> None:
        super().__init__(in_keys, out_keys)
        self.from_int = from_int
        self.unsqueeze = unsqueeze
        self.dtype = torch.get_default_dtype() if dtype is None else dtype
        self.shape_tolerant = shape_tolerant
        if from_int and not self.dtype.is_floating_point:
            raise SpecError(
                f"ToTensorImage(from_int=True, dtype={self.dtype}): after the division by 255, integers can only be 0 "
                "or 1. Leave from_int out to keep 0..255, or pass a floating-point dtype."
            )

    def shared_key(self) -> Any:
        return (type(self), self.from_int, self.unsqueeze, self.dtype, self.shape_tolerant, self.given_keys())

    def _apply_transform(self, value: torch.Tensor) -> torch.Tensor:
        self._check(value, layout="H, W, C")
        if not self.shape_tolerant or value.shape[-1] == 3:
            if value.shape[-3] in (1, 3) and min(value.shape[-2:]) > 4:
                raise SpecError(
                    f"ToTensorImage takes images [*, H, W, C], found the shape {tuple(value.shape)}, whose channels "
                    "are first already. Remove this transform, or pass shape_tolerant=True."
                )
            value = value.movedim(-1, -3)
        if self._divides(value.is_floating_point()):
            # The cast also makes the result contiguous, so the division and later copies are faster.
            if not value.is_floating_point():
                floats = torch.get_default_dtype()
                value = value.to(floats, memory_format=torch.contiguous_format).div_(255)
            else:
                value = value.div(255)
        value = value.to(self.dtype)
        return value.unsqueeze(-4) if self.unsqueeze else value

    def _divides(self, is_float: bool) -> bool:
        """Whether images of a floating-point or integer dtype are divided by 255."""
        return not is_float and self.dtype.is_floating_point if self.from_int is None else self.from_int

    def _leaf(self, key: Any, leaf: Spec) -> Spec:
        is_float = leaf.dtype is not None and leaf.dtype.is_floating_point
        truncates = is_float and not self.dtype.is_floating_point and isinstance(leaf, Bounded)
        if truncates and bool((leaf.space.high <= 1).all()):
            raise SpecError(
                f"ToTensorImage(dtype={self.dtype}): {key!r} has floats up to 1, which integers cannot represent. "
                "Leave dtype out."
            )
        return super()._leaf(key, leaf)

    def row_kernel(self, source: np.ndarray[Any, Any], target: np.ndarray[Any, Any]) -> Callable[[], object] | None:
        is_int = source.dtype.kind in "iub"
        if not is_int or self.from_int is False or source.ndim < 4 or self.dtype is not torch.get_default_dtype():
            return None
        if not self.shape_tolerant or source.shape[-1] == 3:
            source = np.moveaxis(source, -1, -3)
        if self.unsqueeze:
            target = target.squeeze(-4)
        # numpy divides and reorders in one pass; torch needs two.
        dtype = target.dtype
        return partial(np.divide, source, dtype.type(255), out=target, dtype=dtype, casting="unsafe")
