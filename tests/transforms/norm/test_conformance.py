"""Each transform that normalizes, in all situations."""

from __future__ import annotations

import torch

from steppe.specs import Bounded
from steppe.transforms import ObservationNorm, RewardScaling, VecNorm, VecNormV2
from steppe_testing import TransformConformance

SPEC = {"observation": Bounded(-1, 3, (4,))}


class OfAVector(TransformConformance):
    """A bounded vector that becomes one without bounds, or with others."""

    input_spec = SPEC
    expected = {"observation": (4,)}


class TestObservationNorm(OfAVector):
    def make_transform(self):
        return ObservationNorm(torch.arange(4.0), torch.tensor(2.0), ["observation"], standard_normal=True)


class TestInvertedObservationNorm(OfAVector):
    invertible = True

    def make_transform(self):
        return ObservationNorm(1.0, 2.0, ["observation"], in_keys_inv=["observation"])


class TestRewardScaling(TransformConformance):
    input_spec = SPEC
    works_alone = False

    def make_transform(self):
        return RewardScaling(1.0, 0.5)


class TestVecNorm(OfAVector):
    """Frozen: batches inside and outside count in another order, TestCountingVecNorm has the rest."""

    def make_transform(self):
        norm = VecNorm(["observation"])
        norm.set_extra_state(
            {
                "observation_sum": torch.arange(4.0),
                "observation_ssq": 3 + torch.arange(4.0) ** 2,
                "observation_count": torch.tensor([2.0]),
            }
        )
        return norm.freeze()


class TestCountingVecNorm(OfAVector):
    """Counting, wherever one environment, or one batch, counts its steps in one order."""

    for_each_row = False

    def make_transform(self):
        return VecNorm(["observation"])


class TestCountingVecNormV2(OfAVector):
    """The same of moving averages."""

    for_each_row = False

    def make_transform(self):
        return VecNormV2(["observation"], reduce_batch_dims=True)


class TestVecNormV2(OfAVector):
    """Frozen likewise."""

    def make_transform(self):
        norm = VecNormV2(["observation"], reduce_batch_dims=True)
        names = {"loc": torch.arange(4.0), "var": 3 + torch.arange(4.0) ** 2, "count": torch.tensor(2.0)}
        norm.set_extra_state({f"{name}.-|-.observation": value for name, value in names.items()})
        return norm.freeze()
