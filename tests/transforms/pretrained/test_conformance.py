"""Each pretrained transform, in all situations."""

from __future__ import annotations

import pytest
import torch

pytest.importorskip("torchvision")

from steppe.specs import Bounded
from steppe_pretrained import R3MTransform, VIPRewardTransform
from steppe_testing import TransformConformance

pytestmark = [pytest.mark.library, pytest.mark.matrix]

# for_each_row is False: sums of a convolution are rounded in another order for another number of images.

IMAGE = Bounded(0, 255, (10, 12, 3), dtype=torch.uint8)


class TestR3M(TransformConformance):
    for_each_row = False
    input_spec = {"pixels": IMAGE}
    expected = {"r3m_vec": (512,)}

    def make_transform(self):
        torch.manual_seed(0)
        return R3MTransform("resnet18", in_keys=["pixels"], size=16)


class TestTwoImages(TransformConformance):
    for_each_row = False
    input_spec = {"left": IMAGE, "right": IMAGE}
    expected = {"seen": (1024,)}

    def make_transform(self):
        torch.manual_seed(0)
        return R3MTransform("resnet18", in_keys=["left", "right"], out_keys=["seen"], size=16)


class TestVIPReward(TransformConformance):
    for_each_row = False
    input_spec = {"pixels": IMAGE}
    expected = {"vip_vec": (1024,), "goal_embedding": (1024,)}
    works_alone = False  # without an environment there is no step whose reward it could replace
    steps = 4

    def make_transform(self):
        torch.manual_seed(0)
        return VIPRewardTransform(size=16, goal_image=torch.zeros(10, 12, 3, dtype=torch.uint8))
