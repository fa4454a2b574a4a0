"""Environments that fail, hang or are slow, to test batches and collectors."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import torch
from tensordict import TensorDictBase

from .mock_envs import ArrayCountingEnv, CountingEnv

__all__ = ["DyingEnv", "FailingEnv", "HangingEnv", "ShapeShiftingEnv", "SlowEnv"]


class FailingEnv(ArrayCountingEnv):
    """An :class:`~steppe_testing.ArrayCountingEnv` that raises an error.

    >>> from steppe_testing import FailingEnv
    >>> FailingEnv(at=3).rollout(8)
    Traceback (most recent call last):
        ...
    RuntimeError: FailingEnv failed in step 3

    Args:
        at: number of the step or reset that raises, counted from 1 over all episodes.
        in_: where it raises: ``"init"``, ``"reset"``, ``"step"``, or ``"attribute"`` (on reading ``env.broken``).
        error: class of the exception, with a text such as ``"FailingEnv failed in step 3"``.
        **kwargs: arguments of :class:`~steppe_testing.ArrayCountingEnv`.
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
        """A text; raises the error if ``in_="attribute"``."""
        self._fail("attribute", self.at)
        return "not broken"

    def reset_into(
        self, out: dict[Any, np.ndarray[Any, Any]], seed: int | None, env_info: dict[str, Any] | None
    ) -> None:
        """Restart the count, or raise the error."""
        self.resets += 1
        self._fail("reset", self.resets)
        super().reset_into(out, seed, env_info)

    def step_into(self, action: Any, out: dict[Any, np.ndarray[Any, Any]]) -> tuple[bool, bool]:
        """Count one step, or raise the error."""
        self.steps += 1
        self._fail("step", self.steps)
        return super().step_into(action, out)


class SlowEnv(ArrayCountingEnv):
    """An :class:`~steppe_testing.ArrayCountingEnv` whose steps take time.

    >>> import time
    >>> from steppe_testing import SlowEnv
    >>> start = time.perf_counter()
    >>> _ = SlowEnv(seconds=0.01, reset_seconds=0.0).rollout(3)
    >>> time.perf_counter() - start >= 0.03
    True

    Args:
        seconds: duration of a step.
        busy: compute for this time instead of sleeping.
        reset_seconds: duration of a reset. Default: ``seconds``.
        **kwargs: arguments of :class:`~steppe_testing.ArrayCountingEnv`.
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
        """Wait, and restart the count."""
        self._wait(self.reset_seconds)
        super().reset_into(out, seed, env_info)

    def step_into(self, action: Any, out: dict[Any, np.ndarray[Any, Any]]) -> tuple[bool, bool]:
        """Wait, and count one step."""
        self._wait(self.seconds)
        return super().step_into(action, out)


class HangingEnv(ArrayCountingEnv):
    """An :class:`~steppe_testing.ArrayCountingEnv` with a step that does not return.

    >>> from steppe_testing import HangingEnv
    >>> HangingEnv(at=2, seconds=0.01).rollout(5)
    Traceback (most recent call last):
        ...
    TimeoutError: HangingEnv gave up after 0.01 s

    Args:
        at: number of the step that hangs, counted from 1 over all episodes.
        seconds: time after which the step raises a TimeoutError, so that a failing test ends.
        **kwargs: arguments of :class:`~steppe_testing.ArrayCountingEnv`.
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
    """An :class:`~steppe_testing.ArrayCountingEnv` that kills its process in a step.

    For worker processes only.

    >>> from steppe import ParallelEnv
    >>> from steppe.errors import WorkerError
    >>> from steppe_testing import DyingEnv
    >>> try:
    ...     with ParallelEnv(1, DyingEnv) as env:
    ...         env.rollout(10)
    ... except WorkerError as error:
    ...     print(error)
    Worker 0 (process ...) ended unexpectedly, at work on environment 0: it was killed, or a library crashed.

    Args:
        at: number of the step that kills the process, counted from 1 over all episodes.
        **kwargs: arguments of :class:`~steppe_testing.ArrayCountingEnv`.
    """

    def __init__(self, *, at: int = 3, **kwargs: Any) -> None:
        kwargs.setdefault("max_steps", 1000)
        super().__init__(**kwargs)
        self.at = at
        self.steps = 0

    def step_into(self, action: Any, out: dict[Any, np.ndarray[Any, Any]]) -> tuple[bool, bool]:
        """Count one step, or kill the process."""
        import os
        import signal

        self.steps += 1
        if self.steps == self.at:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().step_into(action, out)


class ShapeShiftingEnv(CountingEnv):
    """A :class:`~steppe_testing.CountingEnv` whose data stops fitting its spec.

    From step ``at`` on, the observation has two numbers; its spec has one.

    >>> from steppe_testing import ShapeShiftingEnv
    >>> ShapeShiftingEnv(run_type_checks=True).rollout(5)
    Traceback (most recent call last):
        ...
    steppe.errors.SpecError: ShapeShiftingEnv.step returned data that its specs do not describe:
    'observation' must have shape (1,), found (2,): give the spec shape=(2,). ...

    Args:
        at: number of the first such step, counted from 1 over all episodes.
        **kwargs: arguments of :class:`~steppe_testing.CountingEnv`.
    """

    def __init__(self, *, at: int = 3, **kwargs: Any) -> None:
        super().__init__(**{"max_steps": 1000, **kwargs})
        self.at = at
        self.steps = 0

    def _step(self, tensordict: TensorDictBase) -> TensorDictBase:
        self.steps += 1
        data = super()._step(tensordict)
        return data if self.steps < self.at else data.set("observation", torch.cat([data["observation"]] * 2, -1))
