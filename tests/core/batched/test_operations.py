"""The operations that calls of a batch order from its processes."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from steppe import ParallelEnv
from steppe.batched import operations
from steppe_testing import CountingEnv


def test_each_call_of_a_batch_orders_its_own_operation(monkeypatch: pytest.MonkeyPatch) -> None:
    with ParallelEnv(2, CountingEnv) as env:
        root = env.reset()
        ordered = recorded(env, monkeypatch)
        td = env.step(env.rand_action(root.clone()))
        env.step_and_maybe_reset(env.rand_action(root.clone()))
        env.reset()
        root["_reset"] = torch.tensor([[True], [False]])
        env.reset(root)

    assert td["next", "observation"].tolist() == [[1], [1]]
    assert ordered == [operations.STEP, operations.STEP_AND_RESET, operations.RESET, operations.RESET_ON_DATA]


def recorded(env: Any, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list that gets the operation of each order."""
    ordered: list[int] = []
    run = env._run

    def record(op: int, *args: Any, **kwargs: Any) -> Any:
        ordered.append(op)
        return run(op, *args, **kwargs)

    monkeypatch.setitem(env.__dict__, "_run", record)
    return ordered
