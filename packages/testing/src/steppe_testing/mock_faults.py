"""Environments that fail, dawdle or hang, for tests of whoever runs them."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import torch
from tensordict import TensorDictBase

from .mock_envs import ArrayCountingEnv, CountingEnv

__all__ = ["DyingEnv", "FailingEnv", "HangingEnv", "ShapeShiftingEnv", "SlowEnv"]


class FailingEnv(ArrayCountingEnv):
    """An :class:`~steppe_testing.ArrayCountingEnv` that raises.

    Args:
        at: the step, counted from 1 and over all episodes, or the reset, that raises.
        in_: where it raises: ``"init"``, ``"reset"``, ``"step"``, or ``"attribute"`` (on reading ``env.broken``).
        error: class of the exception. Its text is ``"FailingEnv failed in step 3"``, or as the case may be.
        **kwargs: for :class:`~steppe_testing.ArrayCountingEnv`.
    """

    def __init__(self, *, at: int = 3, in_: str = "step", error: type[Exception] = RuntimeError, **kwargs: Any) -> None:
        kwargs.setdefault("max_steps", 1000)
        super().__init__(**kwargs)
        self.at = at
        self.in_ = in_
        self.error = error
        self.steps = 0
        self.resets = 0
        self._fail("init", at)

    def _fail(self, where: str, count: int) -> None:
        if self.in_ == where and count == self.at:
            raise self.error(f"FailingEnv failed in {where} {count}")

    @property
    def broken(self) -> str:
        """Raises where ``in_="attribute"``."""
        self._fail("attribute", self.at)
        return "not broken"

    def reset_into(
        self, out: dict[Any, np.ndarray[Any, Any]], seed: int | None, env_info: dict[str, Any] | None
    ) -> None:
        """Begin to count again, or raise."""
        self.resets += 1
        self._fail("reset", self.resets)
        super().reset_into(out, seed, env_info)

    def step_into(self, action: Any, out: dict[Any, np.ndarray[Any, Any]]) -> tuple[bool, bool]:
        """Count one step, or raise."""
        self.steps += 1
        self._fail("step", self.steps)
        return super().step_into(action, out)


class SlowEnv(ArrayCountingEnv):
    """An :class:`~steppe_testing.ArrayCountingEnv` whose steps take time.

    Args:
        seconds: how long a step takes.
        busy: compute meanwhile, instead of sleeping.
        reset_seconds: how long a reset takes; ``seconds`` by default.
        **kwargs: for :class:`~steppe_testing.ArrayCountingEnv`.
    """

    def __init__(
        self, *, seconds: float = 0.01, busy: bool = False, reset_seconds: float | None = None, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.seconds = seconds
        self.busy = busy
        self.reset_seconds = seconds if reset_seconds is None else reset_seconds

    def _wait(self, seconds: float) -> None:
        if not self.busy:
            time.sleep(seconds)
            return
        end = time.perf_counter() + seconds
        while time.perf_counter() < end:
            pass

    def reset_into(
        self, out: dict[Any, np.ndarray[Any, Any]], seed: int | None, env_info: dict[str, Any] | None
    ) -> None:
        """Begin to count again, after a while."""
        self._wait(self.reset_seconds)
        super().reset_into(out, seed, env_info)

    def step_into(self, action: Any, out: dict[Any, np.ndarray[Any, Any]]) -> tuple[bool, bool]:
        """Count one step, after a while."""
        self._wait(self.seconds)
        return super().step_into(action, out)


class HangingEnv(ArrayCountingEnv):
    """An :class:`~steppe_testing.ArrayCountingEnv` of which one step does not return.

    Args:
        at: the step, counted from 1 and over all episodes, that hangs.
        seconds: after how long it gives up and raises TimeoutError, so that a test which fails does end.
        **kwargs: for :class:`~steppe_testing.ArrayCountingEnv`.
    """

    def __init__(self, *, at: int = 3, seconds: float = 600.0, **kwargs: Any) -> None:
        kwargs.setdefault("max_steps", 1000)
        super().__init__(**kwargs)
        self.at = at
        self.seconds = seconds
        self.steps = 0

    def step_into(self, action: Any, out: dict[Any, np.ndarray[Any, Any]]) -> tuple[bool, bool]:
        """Count one step, or hang."""
        self.steps += 1
        if self.steps == self.at:
            time.sleep(self.seconds)
            raise TimeoutError(f"HangingEnv gave up after {self.seconds} s")
        return super().step_into(action, out)


class DyingEnv(ArrayCountingEnv):
    """An :class:`~steppe_testing.ArrayCountingEnv` whose process is killed in a step. For worker processes only.

    Args:
        at: the step, counted from 1 and over all episodes, that kills.
        **kwargs: for :class:`~steppe_testing.ArrayCountingEnv`.
    """

    def __init__(self, *, at: int = 3, **kwargs: Any) -> None:
        kwargs.setdefault("max_steps", 1000)
        super().__init__(**kwargs)
        self.at = at
        self.steps = 0

    def step_into(self, action: Any, out: dict[Any, np.ndarray[Any, Any]]) -> tuple[bool, bool]:
        """Count one step, or kill the process it runs in."""
        import os
        import signal

        self.steps += 1
        if self.steps == self.at:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().step_into(action, out)


class ShapeShiftingEnv(CountingEnv):
    """A :class:`~steppe_testing.CountingEnv` whose observation has two numbers from step ``at`` on; its spec has one.

    Args:
        at: the step, counted from 1 and over all episodes, from which on its data does not fit.
        **kwargs: for :class:`~steppe_testing.CountingEnv`.
    """

    def __init__(self, *, at: int = 3, **kwargs: Any) -> None:
        super().__init__(**{"max_steps": 1000, **kwargs})
        self.at = at
        self.steps = 0

    def _step(self, tensordict: TensorDictBase) -> TensorDictBase:
        self.steps += 1
        data = super()._step(tensordict)
        return data if self.steps < self.at else data.set("observation", torch.cat([data["observation"]] * 2, -1))
