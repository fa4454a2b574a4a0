"""The conformance kit on mock environments of every kind, batched in this process and under the fork server."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch

from steppe import ParallelEnv, SerialEnv, StepCounter, TransformedEnv
from steppe.specs import Binary, Bounded, Categorical, Unbounded
from steppe_testing import (
    ACTION_KINDS,
    ArrayCountingEnv,
    CountingEnv,
    DataEnv,
    DoNothingEnv,
    DynamicSpecEnv,
    EnvConformance,
    HeterogeneousCountingEnv,
    IncrementingEnv,
    MetadataEnv,
    MultiAgentCountingEnv,
    MultiKeyCountingEnv,
    NestedCountingEnv,
    NestedResetEnv,
    ScalarActionEnv,
    TextCountingEnv,
    assert_equal_data,
)


class TestTensordicts(EnvConformance):
    def make_env(self, **kwargs: Any) -> Any:
        return CountingEnv(noise=True, **kwargs)


class TestArrays(EnvConformance):
    def make_env(self, **kwargs: Any) -> Any:
        return ArrayCountingEnv(noise=True, info=True, nested=True, actions=True, pixels=(4, 5), **kwargs)


class TestText(EnvConformance):
    def make_env(self, **kwargs: Any) -> Any:
        return TextCountingEnv(noise=True, **kwargs)


class TestGrowingData(EnvConformance):
    seed_matters = False

    def make_env(self, **kwargs: Any) -> Any:
        return DynamicSpecEnv(**kwargs)


class TestTransformed(EnvConformance):
    def make_env(self, **kwargs: Any) -> Any:
        return TransformedEnv(ArrayCountingEnv(noise=True, max_steps=50), StepCounter(max_steps=3))


LEAVES: dict[Any, Any] = {
    "float64": Bounded(-3.0, 4.0, shape=(2, 3), dtype=torch.float64),
    "image": Bounded(0, 255, shape=(7, 6, 3), dtype=torch.uint8),
    "scalar": Unbounded(()),
    ("group", "categorical"): Categorical(5),
    ("group", "deep", "binary"): Binary(4),
    ("group", "deep", "wide"): Unbounded((1000,), dtype=torch.float16),
}
MOCKS: dict[str, Any] = {
    **{f"action {kind}": partial(ArrayCountingEnv, action=kind, noise=True) for kind in ACTION_KINDS},
    **{f"action {kind} in tensordicts": partial(CountingEnv, action=kind, noise=True) for kind in ACTION_KINDS},
    "truncated": partial(ArrayCountingEnv, truncate=True, max_steps=3),
    "leaves of every kind": partial(DataEnv, LEAVES),
    "no reset of its own": DoNothingEnv,
    "seed in the data": IncrementingEnv,
    "scalar action": ScalarActionEnv,
    "metadata": MetadataEnv,
    "nested": NestedCountingEnv,
    "agents": MultiAgentCountingEnv,
    "nested done": partial(NestedResetEnv, max_steps=3),
    "several keys": MultiKeyCountingEnv,
    "different agents": HeterogeneousCountingEnv,
}


@pytest.mark.parametrize("name", MOCKS)
def test_serial_and_parallel_give_equal_data(name: str) -> None:
    def play(env: Any) -> Any:
        with env:
            env.set_seed(7)
            return env.rollout(12, break_when_any_done=False)

    serial = play(SerialEnv(3, MOCKS[name]))

    assert serial.batch_size == (3, 12)
    assert_equal_data(play(ParallelEnv(3, MOCKS[name], num_processes=2)), serial, "the data of a ParallelEnv")
    shared = ParallelEnv(3, MOCKS[name], num_processes=2, caller_share=True)
    assert_equal_data(play(shared), serial, "the data of a ParallelEnv with a share of the caller")
