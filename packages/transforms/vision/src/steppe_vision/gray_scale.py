"""GrayScale: convert colour images to their brightness."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch

from steppe.errors import SpecError
from steppe_vision.image import ImageTransform

__all__ = ["GrayScale"]

#: Weights of red, green and blue (ITU-R 601).
_WEIGHTS = (0.2989, 0.587, 0.114)


class GrayScale(ImageTransform):
    """Convert colour images to one channel, their brightness.

    ``[*, 3, H, W]`` becomes ``[*, 1, H, W]`` of the same dtype: 0.2989 red + 0.587 green + 0.114 blue, rounded down for
    integers. Images with one channel stay unchanged.

    >>> from steppe import Compose, GrayScale, ToTensorImage, TransformedEnv, make_env
    >>> env = TransformedEnv(make_env("gym:CartPole-v1", from_pixels=True), Compose(ToTensorImage(), GrayScale()))
    >>> env.observation_spec["pixels"].shape
    torch.Size([1, 400, 600])

    Args:
        in_keys: images to read. Default: ``"pixels"``, or ``"pixels"`` of each group of agents.
        out_keys: keys to write, as many as ``in_keys``. Default: ``in_keys``.

    Raises:
        SpecError: an image has neither 3 channels nor 1, or has its channels last.
    """

    def shared_key(self) -> Any:
        return (type(self), self.given_keys())

    def _apply_transform(self, value: torch.Tensor) -> torch.Tensor:
        self._check(value)
        channels = value.shape[-3]
        if channels == 1:
            return value
        if channels != 3:
            raise SpecError(
                f"GrayScale takes images [*, 3, H, W] or [*, 1, H, W], found the shape {tuple(value.shape)}."
            )
        # torch promotes the product of integers and these weights to floats.
        return _gray(*value.unbind(-3)).to(value.dtype).unsqueeze(-3)

    def row_kernel(self, source: np.ndarray[Any, Any], target: np.ndarray[Any, Any]) -> Callable[[], object] | None:
        image = torch.from_numpy(source)
        if not image.is_floating_point() or image.ndim < 4 or image.shape[-3] != 3:
            return None
        red, green, blue = image.unbind(-3)
        return partial(_gray, red, green, blue, torch.from_numpy(target).squeeze(-3))


def _gray(red: torch.Tensor, green: torch.Tensor, blue: torch.Tensor, out: torch.Tensor | None = None) -> torch.Tensor:
    """Return the brightness ``[*, H, W]``, in ``out`` or in new memory."""
    red_weight, green_weight, blue_weight = _WEIGHTS
    return torch.mul(red, red_weight, out=out).add_(green, alpha=green_weight).add_(blue, alpha=blue_weight)
