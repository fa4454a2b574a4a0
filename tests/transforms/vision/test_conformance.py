"""Each transform of images, in all situations."""

from __future__ import annotations

import torch

from steppe.specs import Bounded
from steppe.transforms import CenterCrop, Crop, GrayScale, Resize, ToTensorImage
from steppe_testing import TransformConformance

CHANNELS_LAST = {"pixels": Bounded(0, 255, (8, 10, 3), dtype=torch.uint8)}
CHANNELS_FIRST = {"pixels": Bounded(0, 1, (3, 8, 10))}


class TestToTensorImage(TransformConformance):
    input_spec = CHANNELS_LAST
    expected = {"pixels": (3, 8, 10)}

    def make_transform(self):
        return ToTensorImage()


class TestUnsqueezed(TransformConformance):
    input_spec = CHANNELS_LAST
    expected = {"image": (1, 3, 8, 10)}

    def make_transform(self):
        return ToTensorImage(unsqueeze=True, in_keys=["pixels"], out_keys=["image"])


class TestGrayScale(TransformConformance):
    input_spec = CHANNELS_FIRST
    expected = {"pixels": (1, 8, 10)}

    def make_transform(self):
        return GrayScale()


class TestResize(TransformConformance):
    input_spec = CHANNELS_FIRST
    expected = {"pixels": (3, 5, 6)}

    def make_transform(self):
        return Resize(5, 6)


class TestResizedBytes(TransformConformance):
    input_spec = {"pixels": Bounded(0, 255, (3, 8, 10), dtype=torch.uint8)}
    expected = {"pixels": (3, 12, 12)}

    def make_transform(self):
        return Resize(12, interpolation="bicubic")


class TestCrop(TransformConformance):
    input_spec = CHANNELS_FIRST
    expected = {"pixels": (3, 4, 6)}

    def make_transform(self):
        return Crop(4, 6, top=1, left=7)


class TestCenterCrop(TransformConformance):
    input_spec = CHANNELS_FIRST
    expected = {"pixels": (3, 4, 12)}

    def make_transform(self):
        return CenterCrop(4, 12)
