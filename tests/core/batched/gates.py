"""Environments that stay in a step until a test lets them go, in any thread or process, and calls in other threads."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from steppe_testing import ArrayCountingEnv
from tests.limits import CHILD

__all__ = ["Gate", "HeldEnv", "Thread", "wait_for"]


def wait_for(path: Path) -> None:
    """Return as soon as a file is there.

    Raises:
        TimeoutError: it does not come.
    """
    end = time.monotonic() + CHILD
    while not path.exists():
        if time.monotonic() > end:
            raise TimeoutError(f"{path} did not come within {CHILD:g} s")
        time.sleep(0.002)


class Gate:
    """Two files: ``reached`` says that somebody waits at the gate, ``opened`` that nobody has to wait any longer.

    Args:
        folder: where the files are; one folder for each gate.
    """

    def __init__(self, folder: Path) -> None:
        self.reached, self.opened = folder / "reached", folder / "opened"

    def stop(self) -> None:
        """Signal that this process waits, and wait until the gate opens."""
        self.reached.touch()
        wait_for(self.opened)

    def open(self) -> None:
        """Let everybody go, now and later."""
        self.opened.touch()


class HeldEnv(ArrayCountingEnv):
    """Waits at a gate in each step.

    Args:
        gate: the gate.
        **kwargs: for :class:`~steppe_testing.ArrayCountingEnv`.
    """

    def __init__(self, gate: Gate, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.gate = gate

    def step_into(self, action: Any, out: Any) -> tuple[bool, bool]:
        """Count one step, once the gate is open."""
        self.gate.stop()
        return super().step_into(action, out)


class Thread:
    """Calls a function in another thread; ``result()`` returns its result, or raises its exception."""

    def __init__(self, call: Callable[[], Any]) -> None:
        self.outcome: Any = None
        self._thread = threading.Thread(target=self._run, args=(call,), name="stepper", daemon=True)
        self._thread.start()

    def _run(self, call: Callable[[], Any]) -> None:
        try:
            self.outcome = call()
        except BaseException as error:
            self.outcome = error

    def result(self) -> Any:
        """Return what the call returned or raised, when it has ended."""
        self._thread.join(CHILD)
        assert not self._thread.is_alive()
        return self.outcome
