"""Data of a batch on the device that was requested."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch

from steppe import ParallelEnv, SerialEnv
from steppe.batched import readout
from steppe_testing import ArrayCountingEnv, CountingEnv, NestedCountingEnv, assert_equal_data

BOTH = pytest.mark.parametrize("batch", [SerialEnv, partial(ParallelEnv, num_processes=2)], ids=["serial", "parallel"])


@BOTH
def test_data_is_on_the_requested_device(batch: Any) -> None:
    with batch(2, ArrayCountingEnv, device="cpu") as env:
        data = env.rollout(12, break_when_any_done=False)
        assert data.device == data["next"].device == env.device == torch.device("cpu")
    with batch(2, partial(CountingEnv, device="cpu")) as env:
        assert env.reset().device == torch.device("cpu")


@BOTH
@pytest.mark.parametrize("make", [partial(ArrayCountingEnv, 3, pixels=(4, 5)), partial(NestedCountingEnv, 3)])
def test_data_moves_to_a_device_in_one_block(batch: Any, make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with batch(3, make) as env:
        env.set_seed(1)
        expected = env.rollout(8, break_when_any_done=False)
        action = expected[1:2, 0].select(*env.action_keys)
        expected_row = env.step_at(action.clone(), [1])["next"]
    # The path of a GPU, with the host in its place.
    monkeypatch.setattr("steppe.batched.storage_rows.readout", readout.StagedReadout)
    monkeypatch.setattr("steppe.batched.base.is_host", lambda device: False)
    with batch(3, make, device="cpu") as env:
        env.set_seed(1)
        found = env.rollout(8, break_when_any_done=False)
        row = env.step_at(action.clone(), [1])["next"]
        held = found.clone()
        env.rollout(8, break_when_any_done=False)

        assert isinstance(env._rows.next_out, readout.StagedReadout)
    assert_equal_data(found, expected)
    assert_equal_data(row, expected_row)
    assert_equal_data(found, held)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@BOTH
def test_data_is_on_a_requested_gpu(batch: Any) -> None:
    with batch(3, "gym:CartPole-v1") as env:
        env.set_seed(1)
        expected = env.rollout(60, break_when_any_done=False)
    with batch(3, "gym:CartPole-v1", device="cuda") as env:
        env.set_seed(1)
        found = env.rollout(60, break_when_any_done=False)

    assert found.device.type == found["next", "observation"].device.type == "cuda"
    assert_equal_data(found.cpu(), expected)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@BOTH
def test_environments_on_a_gpu_make_a_batch_there(batch: Any) -> None:
    with batch(2, partial(CountingEnv, device="cuda")) as env:
        data = env.rollout(12, break_when_any_done=False)

    assert data["next", "observation"].device.type == "cuda"
    assert data["next", "observation"].flatten().tolist() == [1, 2, 3, 4, 5, 1, 2, 3, 4, 5, 1, 2] * 2
