"""One thread at a time is in an object's exclusive methods."""

from __future__ import annotations

import copy
import os
import pickle
import signal
import threading
from collections.abc import Callable
from typing import Any

import pytest

from steppe.errors import StateError
from steppe.workers import InUse, exclusive
from tests.limits import AT_ONCE


class Machine:
    """An object whose method ``work`` is exclusive, and calls a function meanwhile."""

    def __init__(self) -> None:
        self.in_use = InUse("Machine")

    @exclusive("working")
    def work(self, meanwhile: Callable[[], Any]) -> Any:
        return meanwhile()

    @exclusive("resting")
    def rest(self) -> str:
        return "rested"


def in_thread(call: Callable[[], Any], name: str = "the other") -> Any:
    """Return the result or the error of a call in another thread."""
    found: list[Any] = []

    def run() -> None:
        try:
            found.append(call())
        except Exception as error:
            found.append(error)

    thread = threading.Thread(target=run, name=name)
    thread.start()
    thread.join(AT_ONCE)
    return found[0]


def test_another_thread_gets_the_name_of_the_user() -> None:
    machine = Machine()
    error = machine.work(lambda: in_thread(machine.rest))

    assert isinstance(error, StateError)
    assert str(error).startswith(
        "resting of this Machine was called in thread 'the other', while its working runs in thread 'MainThread'. One "
        "thread at a time can use it: make one Machine for each thread"
    )
    assert in_thread(machine.rest) == "rested"


def test_the_same_thread_may_call_on() -> None:
    machine = Machine()

    assert machine.work(machine.rest) == "rested"
    assert machine.in_use.thread is None


@pytest.mark.parametrize("error", [ZeroDivisionError, KeyboardInterrupt])
def test_an_exception_frees_the_object(error: type[BaseException]) -> None:
    def fail() -> None:
        raise error

    machine = Machine()
    with pytest.raises(error):
        machine.work(fail)

    assert in_thread(machine.rest) == "rested"


def test_alone_waits_for_the_user_and_goes_next() -> None:
    machine, inside, go = Machine(), threading.Event(), threading.Event()
    seen: list[str] = []

    def end() -> None:
        with machine.in_use.alone("ending", AT_ONCE) as alone:
            seen.append(f"alone: {alone}")
            inside.set()
            go.wait(AT_ONCE)

    thread = threading.Thread(target=end, name="ender")

    def work() -> None:
        thread.start()
        while not any(key == "next" for key in machine.in_use.by):
            pass
        seen.append("worked")

    machine.work(work)
    assert inside.wait(AT_ONCE)
    with pytest.raises(StateError, match="while its ending runs in thread 'ender'"):
        machine.rest()
    go.set()
    thread.join(AT_ONCE)

    assert seen == ["worked", "alone: True"]
    assert machine.rest() == "rested"


def test_alone_forces_a_stuck_user_out() -> None:
    machine, stuck = Machine(), threading.Event()

    def end() -> bool:
        with machine.in_use.alone("ending", 0.01, force=stuck.set) as alone:
            return alone

    enders: list[Any] = []
    thread = threading.Thread(target=lambda: enders.append(end()))

    def work() -> None:
        thread.start()
        assert stuck.wait(AT_ONCE)

    machine.work(work)
    thread.join(AT_ONCE)
    assert enders == [True]


def test_alone_gives_up_after_its_timeout() -> None:
    machine = Machine()

    def end() -> bool:
        with machine.in_use.alone("ending", 0.01) as alone:
            return alone

    assert machine.work(lambda: in_thread(end)) is False
    assert machine.rest() == "rested"


def test_a_copy_is_free() -> None:
    in_use = Machine().in_use
    in_use.by["thread"] = threading.get_ident() + 1

    for other in (copy.deepcopy(in_use), pickle.loads(pickle.dumps(in_use))):
        assert (other.name, other.thread) == ("Machine", None)


def test_a_forked_process_is_not_kept_out_by_a_thread_it_lacks() -> None:
    machine = Machine()

    def fork() -> int:
        child = os.fork()
        if child == 0:
            # The thread that is in the machine exists in the parent alone.
            os._exit(0 if machine.rest() == "rested" else 1)
        return os.waitpid(child, 0)[1]

    assert machine.work(lambda: in_thread(fork)) == 0


def test_ctrl_c_at_any_moment_leaves_it_free() -> None:
    machine = Machine()
    before = signal.signal(signal.SIGALRM, signal.default_int_handler)
    interrupts = 0
    try:
        for microseconds in range(1, 400):
            try:
                signal.setitimer(signal.ITIMER_REAL, microseconds * 1e-6)
                for _ in range(2000):
                    machine.rest()
                signal.setitimer(signal.ITIMER_REAL, 0)
            except KeyboardInterrupt:
                interrupts += 1
            assert machine.in_use.thread is None
    finally:
        signal.signal(signal.SIGALRM, before)
    assert interrupts > 100
