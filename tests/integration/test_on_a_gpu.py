"""Environments, collectors, buffers and requests with data and policies on a GPU.

Each program is compared with the same program on the CPU.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from tensordict import TensorDict, TensorDictBase
from tensordict.nn import TensorDictModule

from steppe import (
    Agent,
    AsyncBatchedCollector,
    Collector,
    Composite,
    LazyTensorStorage,
    MultiaSyncDataCollector,
    MultiSyncDataCollector,
    ParallelEnv,
    PolicyBank,
    PrioritizedSampler,
    SerialEnv,
    SliceSampler,
    StepCounter,
    TensorDictReplayBuffer,
    TransformedEnv,
    Unbounded,
    evaluate,
    gae,
    make_env,
)
from steppe_agents import replay
from steppe_testing import assert_equal_data

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")

SEED, STEPS = 5, 60
BATCHES = pytest.mark.parametrize(
    "kind", [SerialEnv, partial(ParallelEnv, num_processes=2)], ids=["serial", "parallel"]
)


def network(device: str = "cpu") -> TensorDictModule:
    """Return a policy whose actions depend on the sign of one sum of integers, which no device rounds differently."""

    class Act(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.gain = torch.nn.Parameter(torch.ones((), device=device))

        def forward(self, observation: torch.Tensor) -> torch.Tensor:
            assert observation.device.type == self.gain.device.type == device
            return (observation[..., 2] * self.gain > 0).long()

    return TensorDictModule(Act(), ["observation"], ["action"])


def cart_pole() -> Any:
    return make_env("gym:CartPole-v1", categorical_action_encoding=True)


def cpu(data: TensorDictBase) -> TensorDictBase:
    """Return data without devices, for a comparison."""
    return data.cpu().clear_device_()


@BATCHES
def test_rows_of_a_batch_are_reset_on_the_gpu(kind: Any) -> None:
    found = []
    for device in (None, "cuda"):
        with kind(3, cart_pole, device=device) as env:
            env.set_seed(SEED)
            td = env.reset()
            for _ in range(4):
                td = env.step(td.set("action", torch.ones(3, dtype=torch.int64, device=device)))["next"]
            mask = torch.tensor([[True], [False], [True]], device=device)
            td = env.reset(td.set("_reset", mask))
            assert td.device == env.device
            found.append(td)

    assert_equal_data(cpu(found[1]), cpu(found[0]))


@BATCHES
def test_steps_with_automatic_resets_agree_on_the_gpu(kind: Any) -> None:
    found = []
    for device in (None, "cuda"):
        with kind(3, cart_pole, device=device) as env:
            env.set_seed(SEED)
            td, rows = env.reset(), []
            for _ in range(STEPS):
                step, td = env.step_and_maybe_reset(td.set("action", torch.ones(3, dtype=torch.int64, device=device)))
                assert step.device == td.device == env.device
                rows.append(step.clone())
            found.append(torch.stack(rows))

    assert found[0]["next", "done"].any()
    assert_equal_data(cpu(found[1]), cpu(found[0]))


def test_a_transformed_batch_moves_to_the_gpu() -> None:
    env = TransformedEnv(SerialEnv(2, cart_pole), StepCounter(9)).to("cuda")
    with env:
        env.check_env_specs()
        data = env.rollout(20, break_when_any_done=False)

    assert data.device.type == data["next", "step_count"].device.type == "cuda"
    assert data["step_count"].max() == 8


COLLECTORS: dict[str, Callable[..., Any]] = {
    "one process": partial(Collector, lambda: SerialEnv(2, cart_pole)),
    "two workers": partial(MultiSyncDataCollector, [partial(SerialEnv, 2, cart_pole)] * 2),
}


@pytest.mark.parametrize("name", COLLECTORS)
@pytest.mark.parametrize(
    ("settings", "stored", "acts"),
    [
        ({"device": "cuda"}, "cuda", "cuda"),
        ({"policy_device": "cuda"}, "cpu", "cuda"),
        ({"storing_device": "cuda"}, "cuda", "cpu"),
        ({"policy_device": "cuda", "storing_device": "cuda"}, "cuda", "cuda"),
    ],
    ids=["device", "policy_device", "storing_device", "both"],
)
def test_a_collector_gives_the_same_frames_with_a_gpu(name: str, settings: Any, stored: str, acts: str) -> None:
    batches = []
    for each, device in (({}, "cpu"), (settings, acts)):
        with COLLECTORS[name](network(device), frames_per_batch=128, seed=SEED, **each) as collector:
            batches.append([next(collector).clone() for _ in range(2)])

    for expected, found in zip(*batches, strict=True):
        assert {value.device.type for value in found.values(True, True)} == {stored}
        assert_equal_data(cpu(found), cpu(expected))


@pytest.mark.parametrize("kind", [MultiSyncDataCollector, MultiaSyncDataCollector])
def test_weights_of_a_policy_on_the_gpu_reach_the_workers(kind: Any) -> None:
    """The caller trains on the GPU, and the workers act on the CPU."""

    class Act(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.action = torch.nn.Parameter(torch.zeros((), device="cuda"))

        def forward(self, observation: torch.Tensor) -> torch.Tensor:
            return self.action.long().expand(observation.shape[:-1])

    policy = TensorDictModule(Act(), ["observation"], ["action"])
    with kind([cart_pole] * 2, policy, frames_per_batch=20, policy_device="cpu") as collector:
        first = next(collector)["action"]
        assert first.device.type == "cpu"
        assert not first.any()
        with torch.no_grad():
            policy.module.action.fill_(1)
        collector.update_policy_weights_()
        # A worker that has begun a batch ends it with the old weights.
        later = (next(collector) for _ in range(50))
        assert any(batch["action"].all() for batch in later)


def test_a_policy_on_the_gpu_acts_for_slow_environments() -> None:
    with AsyncBatchedCollector(
        [cart_pole] * 3, network("cuda"), frames_per_batch=60, policy_device="cuda", total_frames=120
    ) as collector:
        frames = sum(batch.numel() for batch in collector)

    assert frames == 120


@pytest.mark.parametrize("sampler", [None, "prioritized", "slices"])
def test_a_buffer_on_the_gpu_samples_what_was_written(sampler: str | None) -> None:
    chosen = {
        None: {},
        "prioritized": {"sampler": PrioritizedSampler(100, alpha=0.7, beta=0.5)},
        "slices": {"sampler": SliceSampler(slice_len=4, traj_key="episode")},
    }[sampler]
    buffer = TensorDictReplayBuffer(storage=LazyTensorStorage(100, device="cuda"), batch_size=32, **chosen)
    rows = torch.arange(80, device="cuda")
    buffer.extend(TensorDict({"x": rows, "pixels": rows.view(-1, 1).expand(-1, 3) + 1, "episode": rows // 20}, [80]))
    sample = buffer.sample()

    assert sample.device.type == sample["x"].device.type == "cuda"
    assert torch.equal(sample["pixels"], sample["x"].view(-1, 1).expand(-1, 3) + 1)
    if sampler == "prioritized":
        buffer.update_tensordict_priority(sample.set("td_error", torch.full((32,), 3.0, device="cuda")))
        assert buffer.sample()["x"].is_cuda
    if sampler == "slices":
        slices = sample["x"].view(8, 4)
        assert torch.equal(slices, slices[:, :1] + torch.arange(4, device="cuda"))


def test_a_collector_on_the_gpu_fills_a_buffer_there() -> None:
    buffer = TensorDictReplayBuffer(storage=LazyTensorStorage(500, device="cuda"), batch_size=16)
    settings: dict[str, Any] = {"frames_per_batch": 50, "total_frames": 200, "device": "cuda"}
    with Collector(cart_pole, network("cuda"), replay_buffer=buffer, **settings) as collector:
        for _ in collector:
            pass

    assert len(buffer) == 200
    assert buffer.sample()["next", "reward"].is_cuda


class Remembers(Agent):
    """An agent with a memory and a parameter, whose actions count the steps of the episode."""

    agent_info_spec = Composite(stride=Unbounded((), dtype=torch.int64))
    agent_info_default = {"stride": 1}
    agent_state_spec = Composite(h=Unbounded((2,)))

    def __init__(self) -> None:
        super().__init__()
        self.gain = torch.nn.Parameter(torch.tensor(0.5))

    def initial_state(self, tensordict: Any) -> Any:
        return TensorDict({"h": torch.zeros(*tensordict.batch_size, 2, device=self.gain.device)}, tensordict.batch_size)

    def forward(self, tensordict: Any) -> Any:
        assert tensordict["observation"].device == self.gain.device
        h = tensordict["agent_state", "h"] + self.gain
        tensordict.set("value", h.sum(-1))
        stride = tensordict["agent_info", "stride"]
        tensordict.set("action", (h[..., 0] * 2).long() // stride % 2)
        return tensordict.set(("next", "agent_state", "h"), h)


def requested(device: str | None) -> tuple[Any, Any]:
    agent = Remembers() if device is None else Remembers().to(device)
    with Collector(
        lambda: SerialEnv(3, cart_pole), agent, auto_reset=False, policy_device=device, seed=SEED
    ) as collector:
        return agent, collector.execute(agent_info={"stride": torch.tensor([1, 2, 3, 1, 2])}).result()


def test_an_agent_on_the_gpu_gives_the_same_trajectories() -> None:
    (_, expected), (_, found) = requested(None), requested("cuda")

    assert found.length.tolist() == expected.length.tolist()
    for key in ("action", "observation", ("next", "reward")):
        assert torch.equal(found.steps[key].cpu(), expected.steps[key])


def test_a_replay_on_the_gpu_has_the_same_gradients() -> None:
    gradients = []
    for device in (None, "cuda"):
        agent, trajectories = requested(device)
        if device is not None:
            trajectories = trajectories.to(device)
        replay(agent, trajectories)["value"].sum().backward()
        gradients.append(agent.gain.grad.item())

    assert gradients[0] > 0
    assert gradients[1] == pytest.approx(gradients[0])


def test_a_bank_of_policies_acts_on_the_gpu() -> None:
    bank = PolicyBank({name: network("cuda") for name in ("a", "b")})
    with Collector(lambda: SerialEnv(2, cart_pole), bank, policy_device="cuda", seed=SEED) as collector:
        found = collector.execute(agent_info=bank.select(["a", "b", "a"])).result()

    assert found.length.min() > 8


def test_advantages_are_computed_on_the_gpu() -> None:
    generator = torch.Generator().manual_seed(0)
    reward, value, following = (torch.randn(4, 9, 1, generator=generator) for _ in range(3))
    ended = torch.rand(4, 9, 1, generator=generator) < 0.2
    data = TensorDict({"next": {"reward": reward, "terminated": ended, "done": ended}}, [4, 9])
    expected = gae(data, value, following)
    found = gae(data.to("cuda"), value.cuda(), following.cuda())

    for there, here in zip(found, expected, strict=True):
        torch.testing.assert_close(there.cpu(), here)


def test_a_policy_on_the_gpu_is_evaluated() -> None:
    with SerialEnv(2, cart_pole, device="cuda") as env:
        assert evaluate(network("cuda"), env, 3)


def test_vmas_steps_on_the_gpu() -> None:
    pytest.importorskip("vmas")
    with make_env("vmas:balance", num_envs=4, device="cuda", seed=0) as env:
        env.check_env_specs()
        data = env.rollout(8)

    assert {value.device.type for value in data.values(True, True)} == {"cuda"}


@pytest.mark.parametrize("batch_size", [[], [3]])
@pytest.mark.parametrize(
    "name", ["gymnax:CartPole-v1", "pgx:tic_tac_toe", "brax:inverted_pendulum", "jumanji:Snake-v1"]
)
def test_environments_of_jax_give_data_on_the_gpu(name: str, batch_size: list[int]) -> None:
    jax = pytest.importorskip("jax")
    pytest.importorskip(name.partition(":")[0])
    if jax.default_backend() != "gpu":
        pytest.skip("jax has no GPU")
    with make_env(name, batch_size=batch_size) as env:
        env.check_env_specs()
        data = env.rollout(24, break_when_any_done=False)  # games of tic-tac-toe end after 9 moves at most

    assert env.device.type == data["next", "reward"].device.type == "cuda"
