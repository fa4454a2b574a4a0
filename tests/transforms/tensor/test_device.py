"""DeviceCastTransform: data moved between devices."""

from __future__ import annotations

import pytest
import torch

from steppe.transforms import Compose, DeviceCastTransform, RewardSum, StepCounter, TransformedEnv
from steppe_testing import ArrayCountingEnv, CountingEnv

BASES = pytest.mark.parametrize("make", [CountingEnv, ArrayCountingEnv])


def test_everything_is_on_the_device():
    env = TransformedEnv(
        CountingEnv(3, batch_size=(2,)), Compose(StepCounter(), DeviceCastTransform("cpu"), RewardSum())
    )

    assert env.device == torch.device("cpu")
    assert env.base_env.device is None
    assert env.observation_spec.device == torch.device("cpu")
    assert env.reset().device == torch.device("cpu")
    env.check_env_specs()
    assert env.rollout(4, break_when_any_done=False)["next"].device == torch.device("cpu")


def test_casting_some_keys_unsets_the_device():
    env = TransformedEnv(CountingEnv(3, device="cpu"), DeviceCastTransform("cpu", in_keys=["observation"]))

    assert env.device is None
    env.check_env_specs()


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@BASES
def test_data_is_moved_to_the_gpu_and_back(make):
    env = TransformedEnv(
        make(3), Compose(StepCounter(2), RewardSum(), DeviceCastTransform("cuda"), StepCounter(step_count_key="t"))
    )

    env.check_env_specs()
    data = env.rollout(5, break_when_any_done=False)

    assert data.device.type == "cuda"
    assert data["step_count"].squeeze(-1).tolist() == data["t"].squeeze(-1).tolist() == [0, 1, 0, 1, 0]
