"""Processing of a batch between collection and delivery."""

from __future__ import annotations

from typing import Any

import torch
from tensordict import TensorDict, TensorDictBase
from tensordict.nn import TensorDictModule

from steppe import Collector, EnvBase, MultiaSyncDataCollector, SerialEnv, StepCounter, TransformedEnv
from steppe_testing import ArrayCountingEnv, CountingEnv, assert_equal_data
from tests.core.collectors.buffers import Buffer


def make() -> EnvBase:
    return SerialEnv(2, lambda: ArrayCountingEnv(4, noise=True))


def second(observation: torch.Tensor) -> torch.Tensor:
    """The second of three actions, for each row."""
    return torch.eye(3, dtype=torch.bool)[1].expand(*observation.shape[:-1], 3)


def batches(**arguments: Any) -> list[Any]:
    with Collector(make, frames_per_batch=12, total_frames=36, seed=1, **arguments) as collector:
        return list(collector)


def test_batches_go_to_the_replay_buffer_and_none_is_yielded() -> None:
    buffer = Buffer()

    assert batches(replay_buffer=buffer) == [None] * 3
    for found, expected in zip(buffer.extended, batches(), strict=True):
        assert_equal_data(found, expected)
    buffer = Buffer()
    batches(replay_buffer=buffer, postproc=lambda data: data.reshape(-1))
    assert [data.batch_size for data in buffer.extended] == [(12,)] * 3


def test_random_frames_are_counted_by_writes_to_the_buffer() -> None:
    """init_random_frames counts the frames that this collector wrote to the buffer."""
    buffer = Buffer()
    buffer.extend(TensorDict({}, [12]))  # of an earlier collector
    policy = TensorDictModule(second, in_keys=["observation"], out_keys=["action"])
    with Collector(make, policy, frames_per_batch=12, replay_buffer=buffer, init_random_frames=24) as collector:
        for _ in range(3):
            next(collector)

    assert [bool(data["action"][..., 1].all()) for data in buffer.extended[1:]] == [False, True, True]


def test_random_frames_in_turns_are_counted_by_writes() -> None:
    """MultiaSyncDataCollector counts the frames in the buffer, and those that workers have begun."""
    buffer = Buffer()
    buffer.extend(TensorDict({}, [12]))  # of an earlier collector
    policy = TensorDictModule(second, in_keys=["observation"], out_keys=["action"])
    arguments: dict[str, Any] = {"frames_per_batch": 12, "replay_buffer": buffer, "init_random_frames": 24}
    with MultiaSyncDataCollector([make] * 2, policy, **arguments) as collector:
        for _ in range(4):
            next(collector)

    acted = [bool(data["action"][..., 1].all()) for data in buffer.extended[1:]]
    assert sorted(acted) == [False, True, True, True], "one batch of random actions, whichever worker is the first"


def test_hooks_are_called_before_and_after_each_batch() -> None:
    told: list[Any] = []
    batches(pre_collect_hook=lambda: told.append("before"), post_collect_hook=lambda data: told.append(data.shape))

    assert told == ["before", (2, 6)] * 3


def test_a_postproc_module_moves_to_the_storing_device() -> None:
    class Add(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("one", torch.ones((), dtype=torch.float64))

        def forward(self, data: TensorDictBase) -> TensorDictBase:
            return data.set("one", self.one.expand(data.shape))

    module = Add()
    assert torch.equal(batches(postproc=module, storing_device="cpu")[0]["one"], torch.ones(2, 6))
    with Collector(make, frames_per_batch=12, postproc=module, storing_device="meta"):
        assert module.one.device.type == "meta"


def test_ids_of_trajectories_can_be_left_out() -> None:
    plain, without = batches(), batches(track_traj_ids=False)

    for one, other in zip(plain, without, strict=True):
        one.pop(("collector", "traj_ids"))
        assert_equal_data(other, one)


def test_the_policy_version_is_written_at_the_root() -> None:
    """With track_policy_version, the version is an entry of the root and of next."""
    with Collector(CountingEnv(batch_size=(2,)), frames_per_batch=4, track_policy_version=True) as collector:
        first = next(collector)
        collector.update_policy_weights_()
        second = next(collector)

    assert first["policy_version"].tolist() == [[0, 0], [0, 0]]
    assert torch.equal(second["next", "policy_version"], torch.ones(2, 2, dtype=torch.int64))
    assert torch.equal(second["policy_version"], second["collector", "policy_version"])


def test_compact_obs_leaves_observations_out_of_next() -> None:
    with Collector(
        TransformedEnv(make(), StepCounter()), frames_per_batch=12, compact_obs=True, total_frames=24
    ) as collector:
        data = next(collector)

    assert set(data["next"].keys()) == {"reward", "done", "terminated", "truncated"}
    assert {"observation", "step_count"} <= set(data.keys())


def test_a_policy_is_compiled_on_request() -> None:
    calls = []

    def backend(graph: Any, inputs: Any) -> Any:
        calls.append(1)
        return graph.forward

    policy = TensorDictModule(second, ["observation"], ["action"])
    plain = batches(policy=policy)
    compiled = batches(policy=policy, compile_policy={"backend": backend})

    assert calls
    for one, other in zip(plain, compiled, strict=True):
        assert_equal_data(other, one)
