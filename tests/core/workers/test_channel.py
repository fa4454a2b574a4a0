"""SpinGate polls for an answer before the process sleeps, as long as polling is faster."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from steppe.systems import usable_cores
from steppe.workers import SpinGate


class Clock:
    """A clock that advances by a microsecond at each reading."""

    def __init__(self) -> None:
        self.nanoseconds = 0

    def __call__(self) -> int:
        self.nanoseconds += 1_000
        return self.nanoseconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(time, "perf_counter_ns", clock)
    return clock


@pytest.fixture
def gate(clock: Clock) -> SpinGate:
    gate = SpinGate(1, limit_us=100)
    gate.enabled = True  # also where the processor or the system does not allow it
    return gate


def polls(gate: SpinGate, ready: Callable[[], bool], waits: int) -> int:
    """Return how many of some waits poll; the others sleep at once."""
    polled = 0
    for _ in range(waits):
        calls = [0]

        def counted(calls: list[int] = calls) -> bool:
            calls[0] += 1
            return ready()

        gate.spin(counted)
        polled += calls[0] > 1
    return polled


def test_every_wait_polls_while_answers_come_soon(gate: SpinGate) -> None:
    ready = iter([False, True] * 20)

    assert all(gate.spin(lambda: next(ready)) for _ in range(20))


def test_fewer_waits_poll_while_answers_are_late(gate: SpinGate) -> None:
    # Waits 1, 2, 4, 8, 16, 32 and 64 poll, then every 64th.
    assert polls(gate, lambda: False, 100) == 7
    assert polls(gate, lambda: False, 640) == 10


def test_a_late_answer_among_others_lets_no_wait_sleep(gate: SpinGate) -> None:
    answered = 0
    for wait in range(300):
        ready = iter([False, True] if wait % 3 else [False] * 1000)
        answered += gate.spin(lambda ready=ready: next(ready))  # type: ignore[misc]

    assert answered == 200


def test_the_next_waits_sleep_if_a_poll_has_lost_its_core(gate: SpinGate, clock: Clock) -> None:
    def held_up() -> bool:
        clock.nanoseconds += 1_000_000
        return False

    assert polls(gate, held_up, 18) == 2  # waits 1 and 18: 16 waits between them sleep
    assert polls(gate, held_up, 64) == 0


def test_waits_poll_again_after_an_answer(gate: SpinGate) -> None:
    polls(gate, lambda: False, 6)
    ready = iter([False, True] * 100)

    assert polls(gate, lambda: next(ready), 40) == 38  # one wait sleeps, one answer is there at once


def test_no_wait_polls_with_more_processes_than_cores() -> None:
    assert not SpinGate(usable_cores() + 2).enabled
