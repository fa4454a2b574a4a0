"""Environments and policies for collectors with workers, and what their tests ask of processes."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from tensordict.nn import TensorDictModule
from torch import nn

from steppe import (
    EnvBase,
)
from steppe.errors import ClosedError, WorkerError
from steppe_testing import CountingEnv
from tests.limits import AT_ONCE, CHILD
from tests.processes import workers


def counting() -> EnvBase:
    return CountingEnv(3)


class Scaled(nn.Module):
    """Writes its weight, so that data says which weights were used."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(()))

    def forward(self, observation: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        action = torch.zeros(*observation.shape[:-1], 3, dtype=torch.bool)
        action[..., 0] = True
        return action, self.weight.expand(observation.shape[:-1])


def scaled() -> TensorDictModule:
    return TensorDictModule(Scaled(), ["observation"], ["action", "weight"])


def all_gone(pids: list[int]) -> bool:
    """Whether some processes have ended, or do so at once."""
    end = time.monotonic() + AT_ONCE
    while alive := workers().keys() & set(pids):
        if time.monotonic() > end:
            break
        time.sleep(0.01)
    return not alive


class Waiting(CountingEnv):
    """Cannot step beyond its third before a file is there; says with another file that it waits."""

    def __init__(self, file: str) -> None:
        super().__init__(100)
        self.file, self.number = file, 0

    def _step(self, tensordict: Any) -> Any:
        self.number += 1
        if self.number > 3:
            Path(f"{self.file}.waits").touch()
        while self.number > 3 and not os.path.exists(self.file):
            os.sched_yield()
        return super()._step(tensordict)


def interrupt_waiting(interrupt: Callable[[], None], file: Path) -> None:
    """Interrupt workers once the one of :class:`Waiting` is in its fourth step, and let that end."""
    deadline = time.monotonic() + CHILD
    while not Path(f"{file}.waits").exists() and time.monotonic() < deadline:
        time.sleep(0.001)
    interrupt()
    file.touch()


class Breaking(CountingEnv):
    """Raises in its sixth step, or when it is reset."""

    def __init__(self, where: str) -> None:
        super().__init__(3)
        self.where, self.number = where, 0
        if where == "factory":
            raise ValueError("broken in factory")

    def _reset(self, tensordict: Any = None, **kwargs: Any) -> Any:
        if self.where == "reset":
            raise ValueError("broken in reset")
        return super()._reset(tensordict, **kwargs)

    def _step(self, tensordict: Any) -> Any:
        self.number += 1
        if self.where == "step" and self.number > 5:
            raise ValueError("broken in step")
        if self.where == "kill" and self.number > 5:
            os.kill(os.getpid(), signal.SIGKILL)
        if self.where == "hang" and self.number > 5:
            signal.pause()
        return super()._step(tensordict)


def several_batches(make: Any) -> None:
    """Collect batches until a worker raises an error."""
    collector = make()
    pids = collector.backend.pool.pids
    try:
        for _ in range(5):
            next(collector)
    except WorkerError:
        with pytest.raises(ClosedError, match="after an error"):
            next(collector)
        raise
    finally:
        collector.shutdown()
        collector.shutdown()
        assert all_gone(pids)
