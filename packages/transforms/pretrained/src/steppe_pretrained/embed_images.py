"""EmbedImages: a ResNet that turns images into vectors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from tensordict import NestedKey
from torch import nn

from steppe.errors import LibraryMissing, SpecError
from steppe.specs import Composite, Unbounded
from steppe.transforms import ObservationTransform

__all__ = ["EmbedImages", "make_resnet"]

# The mean and deviation of ImageNet, with which the networks were trained.
_MEAN = (0.485, 0.456, 0.406)
_STD = (0.229, 0.224, 0.225)


def make_resnet(name: str) -> tuple[nn.Module, int]:
    """Make a ResNet without its last layer, with random weights.

    Args:
        name: ``"resnet18"``, ``"resnet34"`` or ``"resnet50"``.

    Returns:
        The network, and the size of its vectors.

    Raises:
        LibraryMissing: torchvision is not installed, or does not fit the installed torch.
    """
    try:
        from torchvision import models
    except (ImportError, RuntimeError) as error:
        # A build of torchvision for another torch raises RuntimeError: "operator torchvision::nms does not exist".
        raise LibraryMissing(
            f"steppe-pretrained needs the torchvision that belongs to torch {torch.__version__}, which cannot be "
            f"imported ({error}). Install it from where this torch came from."
        ) from error
    net: Any = getattr(models, name)(weights=None)
    size = int(net.fc.in_features)
    net.fc = nn.Identity()
    return net, size


class EmbedImages(ObservationTransform):
    """Turn images ``[*, H, W, 3]`` uint8, or ``[*, 3, H, W]`` floats from 0 to 1, into vectors ``[*, k]`` float32.

    Images are resized and normalized first. The network is always in evaluation mode, so that images of one batch do
    not change each other's vectors, unless ``requires_grad``.

    Args:
        net: the network, for images ``[n, 3, size, size]``.
        vector_size: number of elements of its vectors.
        size: side of the images that the network sees.
        in_keys: images.
        out_keys: vectors, as many.
        requires_grad: gradients flow through the network, which takes part in training.
    """

    def __init__(
        self,
        net: nn.Module,
        vector_size: int,
        size: int,
        in_keys: Sequence[NestedKey],
        out_keys: Sequence[NestedKey],
        *,
        requires_grad: bool = False,
    ) -> None:
        super().__init__(in_keys, out_keys)
        self.convnet = net
        self.vector_size, self.size, self.requires_grad = vector_size, size, requires_grad
        self.register_buffer("mean", torch.tensor(_MEAN, device="cpu").view(3, 1, 1), persistent=False)
        self.register_buffer("std", torch.tensor(_STD, device="cpu").view(3, 1, 1), persistent=False)
        self.convnet.requires_grad_(requires_grad)
        self.convnet.eval()

    def train(self, mode: bool = True) -> EmbedImages:
        """Set the mode; the network stays in evaluation mode unless ``requires_grad``."""
        super().train(mode)
        if not self.requires_grad:
            self.convnet.eval()
        return self

    def _apply_transform(self, value: torch.Tensor) -> torch.Tensor:
        return self.embed(value)

    def embed(self, value: torch.Tensor) -> torch.Tensor:
        """Return the vectors ``[*, k]`` of images ``[*, H, W, 3]``."""
        with torch.set_grad_enabled(self.requires_grad and torch.is_grad_enabled()):
            images = self._prepared(value)
            lead = images.shape[:-3]
            vectors: torch.Tensor = self.convnet(images.reshape(-1, *images.shape[-3:]))
            return vectors.reshape(*lead, self.vector_size).to(value.device)

    def _prepared(self, value: torch.Tensor) -> torch.Tensor:
        """Return images ``[*, 3, size, size]`` float32, normalized, on the device of the network."""
        mean: Any = self.mean
        images = value.to(mean.device)
        if images.ndim < 3 or 3 not in (images.shape[-1], images.shape[-3]):
            raise SpecError(f"Images must be [*, H, W, 3] or [*, 3, H, W], found the shape {tuple(value.shape)}.")
        if images.shape[-1] == 3 and not (value.is_floating_point() and images.shape[-3] == 3):
            images = images.movedim(-1, -3)
        images = images.to(torch.float32) / (1.0 if value.is_floating_point() else 255.0)
        if images.shape[-2:] != (self.size, self.size):
            flat = images.reshape(-1, *images.shape[-3:])
            flat = nn.functional.interpolate(flat, (self.size, self.size), mode="bilinear", antialias=True)
            images = flat.reshape(*images.shape[:-3], *flat.shape[1:])
        normalized: torch.Tensor = (images - mean) / self.std
        return normalized

    def transform_observation_spec(self, observation_spec: Composite) -> Composite:
        for key, out_key in zip(self.in_keys, self.out_keys, strict=True):
            leaf = observation_spec.get(key, None)
            if leaf is None:
                keys = list(observation_spec.keys(include_nested=True, leaves_only=True))
                raise SpecError(f"{type(self).__name__}: the environment has no observation {key!r}. It has {keys}.")
            observation_spec.set(out_key, Unbounded((*leaf.shape[:-3], self.vector_size), device=leaf.device))
        return observation_spec
