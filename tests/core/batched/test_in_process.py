"""Environments of a batch that the caller's process steps: all of them, or the first ones beside workers."""

from __future__ import annotations

import sys
from functools import partial
from typing import Any

import pytest

from steppe import ParallelEnv, SerialEnv
from steppe.errors import WorkerError
from steppe_testing import ArrayCountingEnv, CountingEnv, FailingEnv


def data(env: Any) -> Any:
    with env:
        env.set_seed(3)
        return env.rollout(30, break_when_any_done=False)


def test_in_one_process_the_exception_keeps_its_type() -> None:
    env = SerialEnv(3, [ArrayCountingEnv, partial(FailingEnv, error=ZeroDivisionError), ArrayCountingEnv])

    with pytest.raises(ZeroDivisionError, match="FailingEnv failed in step 3"):
        env.rollout(10)

    env.close()


@pytest.mark.skipif(sys.version_info < (3, 11), reason="exceptions have notes since Python 3.11")
@pytest.mark.parametrize("others", [FailingEnv, ArrayCountingEnv, CountingEnv], ids=["one loop", "loops", "mixed"])
@pytest.mark.parametrize("where", ["step", "reset"])
def test_a_note_names_the_environment_that_raised(others: Any, where: str) -> None:
    """Environments of one class are stepped in one loop, others one by one."""
    other = partial(others, at=50) if others is FailingEnv else others
    env = SerialEnv(3, [other, partial(FailingEnv, in_=where, at=2, max_steps=2), other])

    with pytest.raises(RuntimeError) as caught:
        env.rollout(10, break_when_any_done=False)

    assert caught.value.__notes__ == [f"in {where} of environment 1 of a SerialEnv"]
    env.close()


def test_an_error_in_a_factory_arrives_unchanged() -> None:
    with pytest.raises(ZeroDivisionError), SerialEnv(2, [ArrayCountingEnv, lambda: 1 / 0]) as env:
        env.reset()


def test_closing_a_serial_env_closes_its_environments() -> None:
    envs = [ArrayCountingEnv(), ArrayCountingEnv()]
    with SerialEnv(2, [lambda: envs[0], lambda: envs[1]]) as env:
        env.reset()

    assert [each.is_closed for each in envs] == [True, True]


@pytest.mark.programs
@pytest.mark.usefixtures("nothing_left")
@pytest.mark.parametrize("make", [ArrayCountingEnv, CountingEnv])
def test_a_share_of_the_caller_gives_the_same_data(make: Any) -> None:
    shared = data(ParallelEnv(5, lambda: make(max_steps=4), num_processes=2, caller_share=True))

    assert (shared == data(SerialEnv(5, lambda: make(max_steps=4)))).all()


@pytest.mark.programs
@pytest.mark.usefixtures("nothing_left")
def test_an_exception_in_the_callers_share_names_the_environment() -> None:
    env = ParallelEnv(2, [FailingEnv, ArrayCountingEnv], num_processes=2, caller_share=True)

    with pytest.raises(WorkerError, match="caller's share raised in step of environment 0") as caught:
        env.rollout(10)

    assert caught.value.env == 0
    assert isinstance(caught.value.__cause__, RuntimeError)
    env.close()
