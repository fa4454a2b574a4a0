"""Looking for an answer before sleeping, only while that pays."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from steppe.systems import usable_cores
from steppe.workers import SpinGate


class Clock:
    """A clock that goes on by a microsecond each time it is read, however busy the machine is."""

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


def answers(gate: SpinGate, ready: Callable[[], bool], times: int) -> int:
    """How many of some waits looked more than once, the rest having gone to sleep at once."""
    looked = 0
    for _ in range(times):
        calls = [0]

        def counted(calls: list[int] = calls) -> bool:
            calls[0] += 1
            return ready()

        gate.spin(counted)
        looked += calls[0] > 1
    return looked


def test_what_comes_soon_is_found_every_time(gate: SpinGate) -> None:
    found = iter([False, True] * 20)

    assert all(gate.spin(lambda: next(found)) for _ in range(20))


def test_what_does_not_come_is_looked_for_less_and_less(gate: SpinGate) -> None:
    # Looks 1, 3, 6, 11, 20, 37, 70, each twice as far from the last one.
    assert answers(gate, lambda: False, 100) == 7


def test_a_look_that_lost_its_core_is_not_repeated_soon(gate: SpinGate, clock: Clock) -> None:
    def held_up() -> bool:
        clock.nanoseconds += 1_000_000
        return False

    assert answers(gate, held_up, 18) == 2


def test_looking_pays_again_after_it_has_found_something(gate: SpinGate) -> None:
    answers(gate, lambda: False, 6)
    found = iter([False, True] * 100)

    assert answers(gate, lambda: next(found), 40) > 25


def test_nobody_looks_where_processes_are_many_more_than_cores() -> None:
    assert not SpinGate(usable_cores() + 2).enabled
