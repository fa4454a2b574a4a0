"""Ctrl-C cannot separate a message from its processing."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator

import pytest

from steppe.workers import uninterrupted
from tests.limits import AT_ONCE


@pytest.fixture(autouse=True)
def handler() -> Iterator[None]:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def press() -> None:
    signal.raise_signal(signal.SIGINT)


def test_ctrl_c_is_raised_at_the_end_of_the_block() -> None:
    done = []

    def work() -> None:
        with uninterrupted():
            press()
            done.append("kept")
        done.append("not reached")

    with pytest.raises(KeyboardInterrupt):
        work()
    assert done == ["kept"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@uninterrupted()
def pressed_twice() -> None:
    press()
    press()
    raise AssertionError("a block that does not end cannot be left")


@uninterrupted()
def pressed_before_an_error() -> None:
    press()
    raise ZeroDivisionError


@pytest.mark.parametrize(
    ("work", "error"),
    [(pressed_twice, KeyboardInterrupt), (pressed_before_an_error, ZeroDivisionError)],
    ids=["a second one comes at once", "an error of the block goes first"],
)
def test_an_error_in_the_block_restores_the_signal_handler(
    work: Callable[[], None], error: type[BaseException]
) -> None:
    with pytest.raises(error):
        work()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_callers_handler_runs_at_the_end_of_the_block() -> None:
    told = []
    signal.signal(signal.SIGINT, lambda number, frame: told.append(number))
    with uninterrupted():
        press()
        assert told == []

    assert told == [signal.SIGINT]


def test_an_ignored_interrupt_stays_ignored() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with uninterrupted():
        press()
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN


def test_other_threads_go_on_as_they_are() -> None:
    seen = []

    def work() -> None:
        with uninterrupted():
            seen.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join(AT_ONCE)

    assert seen == [signal.default_int_handler]
