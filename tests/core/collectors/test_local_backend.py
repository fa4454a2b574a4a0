"""Collectors in the caller's process: environments, devices, numbers of frames."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from tensordict import TensorDictBase
from tensordict.nn import TensorDictModule

from steppe import (
    Collector,
    EnvBase,
    SerialEnv,
    StepCounter,
    TensorDictPrimer,
    TransformedEnv,
    Unbounded,
)
from steppe.errors import SpecError
from steppe_testing import (
    ArrayCountingEnv,
    CountingEnv,
)


def test_frames_are_rounded_up_to_whole_steps_with_one_warning() -> None:
    with pytest.warns(UserWarning, match="rounded up to 12: 4 steps of 3 environments") as caught:
        collector = Collector(CountingEnv(batch_size=(3,)), frames_per_batch=10, total_frames=24)
    assert len(caught) == 1
    with collector:
        assert [batch.batch_size for batch in collector] == [(3, 4)] * 2
        assert (collector.frames_per_batch, collector.requested_frames_per_batch) == (12, 12)


def test_total_frames_are_rounded_up_with_a_warning() -> None:
    """total_frames is rounded up to whole batches."""
    with pytest.warns(UserWarning, match="total_frames=11 is rounded up to 15"):
        collector = Collector(CountingEnv(), frames_per_batch=5, total_frames=11)
    with collector:
        assert len(collector) == len(list(collector)) == 3


def test_max_frames_per_traj_truncates() -> None:
    with Collector(CountingEnv(100, batch_size=(2,)), frames_per_batch=12, max_frames_per_traj=3) as collector:
        batch = next(collector)
    assert batch["next", "truncated"].squeeze(-1).tolist() == [[False, False, True, False, False, True]] * 2
    assert batch["next", "terminated"].any().item() is False
    assert batch["observation"].squeeze(-1).tolist() == [[0, 1, 2, 0, 1, 2]] * 2


def test_max_frames_per_traj_refuses_a_second_counter() -> None:
    with pytest.raises(SpecError, match="'step_count' already"):
        Collector(TransformedEnv(CountingEnv(), StepCounter()), frames_per_batch=3, max_frames_per_traj=3)


@pytest.mark.parametrize("make", [CountingEnv, lambda: SerialEnv(2, ArrayCountingEnv)], ids=["one", "batch"])
def test_a_policy_reads_its_device_from_the_data(make: Callable[[], EnvBase]) -> None:
    """The data for a policy is on policy_device."""
    devices = []

    def policy(tensordict: TensorDictBase) -> TensorDictBase:
        devices.append(tensordict.device)
        action = torch.zeros(*tensordict.batch_size, 3, dtype=torch.bool, device=tensordict.device)
        action[..., 0] = True
        return tensordict.set("action", action)

    with Collector(make, policy, frames_per_batch=4, policy_device="cpu") as collector:
        batch = next(collector)
        assert collector.env.device is None

    assert set(devices) == {torch.device("cpu")}
    assert batch.device is None


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("make", [CountingEnv, lambda: SerialEnv(2, ArrayCountingEnv)], ids=["one", "batch"])
@pytest.mark.parametrize("module", [True, False])
def test_a_policy_acts_on_a_gpu_for_an_env_without_device(make: Callable[[], EnvBase], module: bool) -> None:
    """With policy_device, the policy computes on the GPU and its actions come back."""

    def act(observation: torch.Tensor) -> torch.Tensor:
        assert observation.is_cuda
        return (torch.arange(3, device=observation.device) == 0).expand(*observation.shape[:-1], 3)

    class Act(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.zeros(()))

        def forward(self, observation: torch.Tensor) -> torch.Tensor:
            assert self.weight.is_cuda
            return act(observation)

    policy = TensorDictModule(Act() if module else act, in_keys=["observation"], out_keys=["action"])
    with Collector(make, policy, frames_per_batch=4, policy_device="cuda") as collector:
        batch = next(collector)

    assert batch["action"].device.type == "cpu"
    assert batch["action"][..., 0].all()


def test_auto_register_appends_the_primer_of_a_policy() -> None:
    """The transform that a policy makes for its memory is appended on request."""

    class Remembers(torch.nn.Module):
        def make_tensordict_primer(self) -> TensorDictPrimer:
            return TensorDictPrimer(memory=Unbounded((2,)))

        def forward(self, tensordict: TensorDictBase) -> TensorDictBase:
            tensordict.set(("next", "memory"), tensordict["memory"] + 1)
            return tensordict.set("action", torch.tensor([True, False, False]))

    with Collector(CountingEnv(3), Remembers(), frames_per_batch=6, auto_register_policy_transforms=True) as collector:
        batch = next(collector)

    assert batch["memory"][:2, 0].tolist() == [0, 1]
    assert torch.equal(batch["is_init"].squeeze(-1), batch["memory"][:, 0] == 0)
