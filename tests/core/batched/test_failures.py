"""Errors of environments and workers: prompt reports, clean closing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from steppe import ParallelEnv, SerialEnv
from steppe.envs import ArrayEnv
from steppe.errors import ClosedError, WorkerError, WorkerTimeout
from steppe.specs import Bounded, Categorical, Composite, Unbounded
from steppe.workers import fork_server
from steppe_testing import ArrayCountingEnv, CountingEnv, FailingEnv, HangingEnv, TextCountingEnv
from tests.core.batched.gates import Gate, HeldEnv, wait_for
from tests.limits import ANSWER, AT_ONCE, CHILD

pytestmark = pytest.mark.usefixtures("nothing_left")


def among(odd: Any, at: int = 2, n: int = 4) -> list[Any]:
    """Factories of which one is odd."""
    return [odd if row == at else ArrayCountingEnv for row in range(n)]


class FailingCountingEnv(CountingEnv):
    """Fails on the tensordict path: in its third step, or its second reset."""

    def __init__(self, in_: str) -> None:
        super().__init__(max_steps=2 if in_ == "reset" else 100)
        self.in_, self.times = in_, {"step": 0, "reset": 0}

    def _note(self, where: str) -> None:
        self.times[where] += 1
        if where == self.in_ and self.times[where] == (3 if where == "step" else 2):
            raise LookupError(f"in {where}")

    def _reset(self, tensordict: Any = None, **kwargs: Any) -> Any:
        self._note("reset")
        return super()._reset(tensordict, **kwargs)

    def _step(self, tensordict: Any) -> Any:
        self._note("step")
        return super()._step(tensordict)


@pytest.mark.parametrize("where", ["step", "reset"])
@pytest.mark.parametrize("path", ["arrays", "tensordicts"])
def test_an_exception_inside_step_and_maybe_reset_is_named(path: str, where: str) -> None:
    if path == "arrays":
        odd = partial(FailingEnv, in_=where, at=2 if where == "reset" else 3, max_steps=2)
    else:
        odd = partial(FailingCountingEnv, where)
    env = ParallelEnv(4, among(odd), num_processes=2)

    with pytest.raises(WorkerError, match=f"Worker 1 raised in {where} of environment 2") as caught:
        env.rollout(10, break_when_any_done=False)

    assert (caught.value.worker, caught.value.env) == (1, 2)
    assert "Traceback (most recent call last)" in caught.value.remote_traceback
    with pytest.raises(ClosedError, match="stopped after an error"):
        env.reset()
    env.close()


def test_of_two_failures_at_once_one_arrives() -> None:
    env = ParallelEnv(4, [FailingEnv] * 4, num_processes=4)

    with pytest.raises(WorkerError, match=r"raised in step of environment \d") as caught:
        env.rollout(10)

    assert caught.value.worker == caught.value.env
    env.close()


def test_an_exception_in_init_leaves_nothing_to_close_first() -> None:
    env = ParallelEnv(4, among(partial(FailingEnv, in_="init")), num_processes=4)
    for _ in range(2):
        with pytest.raises(WorkerError, match="FailingEnv failed in init") as caught:
            env.start()
        assert (caught.value.worker, caught.value.env) == (2, 2)
        assert "mock_faults.py" in caught.value.remote_traceback

    env.close()


class Strange(Exception):
    """Cannot be pickled, and has no text."""

    def __init__(self, one: Any, two: Any) -> None:
        super().__init__(lambda: None)

    def __str__(self) -> str:
        raise ValueError("no text")


def raise_strange() -> Any:
    raise Strange(1, 2)


def test_an_exception_that_cannot_be_pickled_or_printed_arrives() -> None:
    env = ParallelEnv(2, raise_strange, num_processes=1)

    with pytest.raises(WorkerError, match="Strange") as caught:
        env.reset()

    assert "raise_strange" in caught.value.remote_traceback
    env.close()


class Leaving(ArrayCountingEnv):
    """Ends its process, or tries to, in its second step."""

    def __init__(self, how: str) -> None:
        super().__init__(max_steps=100)
        self.how = how

    def step_into(self, action: Any, out: Any) -> tuple[bool, bool]:
        if self.count == 1 and self.how == "sys.exit":
            sys.exit("enough")
        if self.count == 1 and self.how == "KeyboardInterrupt":
            raise KeyboardInterrupt
        if self.count == 1 and self.how == "os._exit":
            os._exit(3)
        return super().step_into(action, out)


@pytest.mark.parametrize(
    ("how", "text"),
    [
        ("sys.exit", "SystemExit: enough"),
        ("KeyboardInterrupt", "KeyboardInterrupt"),
        ("os._exit", "ended unexpectedly, at work on environment 2"),
    ],
)
def test_a_library_that_exits_raises_a_worker_error(how: str, text: str) -> None:
    env = ParallelEnv(4, among(partial(Leaving, how)), num_processes=2)

    with pytest.raises(WorkerError, match=text) as caught:
        env.rollout(10)

    assert caught.value.worker == 1
    env.close()


class BadClose(ArrayCountingEnv):
    """Raises when it is closed."""

    def close(self, *, raise_if_closed: bool = True) -> None:
        raise OSError("no way to close")


def test_an_exception_in_close_does_not_stop_the_others() -> None:
    env = ParallelEnv(4, among(BadClose), num_processes=2)
    env.reset()

    env.close()


# -- killed workers


PARTIAL = torch.tensor([False, False, True, False])
USES: dict[str, Callable[[Any, Any], Any]] = {
    "reset": lambda env, td: env.reset(),
    "step": lambda env, td: env.step(td),
    "partial step": lambda env, td: env.step(td.set("_step", PARTIAL)),
    "rollout": lambda env, td: env.rollout(1000, break_when_any_done=False),
    "seed": lambda env, td: env.set_seed(0),
    "attribute": lambda env, td: list(env.count),
}


@pytest.mark.parametrize("data", [ArrayCountingEnv, TextCountingEnv], ids=["arrays", "text"])
@pytest.mark.parametrize("use", USES.values(), ids=USES)
def test_a_killed_worker_is_named_at_once_wherever_it_is_missed(use: Callable[[Any, Any], Any], data: Any) -> None:
    env = ParallelEnv(4, data, num_processes=2)
    td = env.rand_action(env.reset())
    pid = env.worker_pids[1]
    os.kill(pid, signal.SIGKILL)
    started = time.monotonic()

    with pytest.raises(WorkerError, match=rf"Worker 1 \(process {pid}\) ended") as caught:
        use(env, td)

    assert time.monotonic() - started < AT_ONCE
    assert caught.value.worker == 1
    with pytest.raises((ClosedError, AttributeError), match="stopped after an error"):
        use(env, td)
    assert not hasattr(env, "count")
    env.close()


def test_a_worker_killed_in_a_step_is_reported_at_once(tmp_path: Path) -> None:
    gate = Gate(tmp_path)
    env = ParallelEnv(4, among(partial(HeldEnv, gate)), num_processes=4)
    td = env.rand_action(env.reset())
    pid = env.worker_pids[2]
    # A killer in another process, because this one waits.
    killer = os.fork()
    if killer == 0:
        wait_for(gate.reached)
        os.kill(pid, signal.SIGKILL)
        os._exit(0)
    started = time.monotonic()

    with pytest.raises(WorkerError, match="at work on environment 2") as caught:
        env.step(td)

    assert time.monotonic() - started < AT_ONCE
    assert caught.value.env == 2
    os.waitpid(killer, 0)
    env.close()


def test_a_worker_killed_while_it_starts_is_missed() -> None:
    def make() -> Any:
        os.kill(os.getpid(), signal.SIGKILL)

    env = ParallelEnv(2, [ArrayCountingEnv, make], num_processes=2)

    with pytest.raises(WorkerError, match=r"Worker 1 .* ended unexpectedly, at work on environment 1"):
        env.start()

    env.close()


@pytest.mark.parametrize("share", [False, True])
@pytest.mark.parametrize("make", [ArrayCountingEnv, "gym:CartPole-v1"])
def test_refused_reset_arguments_leave_the_batch_usable(make: Any, share: bool) -> None:
    """If an environment refuses arguments of a reset, the batch stays usable."""
    with ParallelEnv(4, make, num_processes=2, caller_share=share) as env:
        env.rollout(2)

        with pytest.raises(WorkerError, match="colour"):
            env.reset(colour="red")
        each = [{}, {}, {}, {"colour": "red"}]
        with pytest.raises(WorkerError, match=r"environment 3.*colour"):
            env.reset(list_of_kwargs=each)

        assert env.rollout(3).shape == (4, 3)


@pytest.mark.programs
def test_a_program_ends_at_once_while_a_forked_child_of_it_lives() -> None:
    program = """if True:
        import atexit, os, signal, time
        from steppe import ParallelEnv
        from steppe_testing import ArrayCountingEnv
        with ParallelEnv(2, ArrayCountingEnv, num_processes=1) as env:
            env.reset()
        child = os.fork()
        if child == 0:
            time.sleep(600)
            os._exit(0)
        from steppe.workers import fork_server
        server = fork_server()
        atexit._run_exitfuncs()
        print(server.process.returncode)
        os.kill(child, signal.SIGKILL)
        """
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=CHILD, check=True)

    assert done.stdout.split() == ["0"], done.stderr  # it was not killed after a wait


def test_a_killed_fork_server_is_replaced_and_its_workers_run() -> None:
    with ParallelEnv(2, ArrayCountingEnv, num_processes=2) as older:
        older.reset()
        server = fork_server()
        server.process.kill()
        server.process.wait(CHILD)
        with ParallelEnv(2, ArrayCountingEnv, num_processes=2) as newer:
            assert newer.rollout(3).shape == (2, 3)

        assert fork_server() is not server
        assert older.rollout(3).shape == (2, 3)


# -- time limits


def test_a_reset_that_hangs_is_given_up() -> None:
    class Asleep(ArrayCountingEnv):
        def reset_into(self, *args: Any) -> None:
            time.sleep(600)

    env = ParallelEnv(4, among(Asleep, at=3), num_processes=4, step_timeout=ANSWER)

    with pytest.raises(
        WorkerTimeout, match=rf"Worker 3, at work on environment 3, did not answer within {ANSWER} s"
    ) as e:
        env.reset()

    assert e.value.env == 3
    env.close()


def test_the_environment_that_hangs_is_named() -> None:
    """If a worker has several environments, the error names the one that hangs."""
    env = ParallelEnv(6, among(HangingEnv, at=4, n=6), num_processes=2, step_timeout=ANSWER)

    with pytest.raises(WorkerTimeout, match=rf"environment 4, did not answer within {ANSWER} s"):
        env.rollout(20, break_when_any_done=False)

    env.close()


class SleepingText(TextCountingEnv):
    """Hangs in its second step; its data travels in messages."""

    def _step(self, tensordict: Any) -> Any:
        if int(self.count) == 1:
            time.sleep(600)
        return super()._step(tensordict)


def test_the_step_timeout_holds_for_data_in_messages() -> None:
    """An environment whose data travels in messages times out as well."""
    env = ParallelEnv(2, [TextCountingEnv, SleepingText], num_processes=2, step_timeout=ANSWER)

    with pytest.raises(WorkerTimeout, match="environment 1"):
        env.rollout(20, break_when_any_done=False)

    env.close()


# -- data that does not fit


class Misfit(CountingEnv):
    """Its specs say one thing and its data another."""

    def __init__(self, entry: str, value: Any) -> None:
        super().__init__(max_steps=100)
        self.entry, self.value = entry, value

    def _step(self, tensordict: Any) -> Any:
        data = super()._step(tensordict)
        if int(self.count) == 2:  # the first step is held against the specs; later ones are not
            data[self.entry] = self.value
        return data


@pytest.mark.parametrize("kind", [SerialEnv, partial(ParallelEnv, num_processes=2)])
@pytest.mark.parametrize(
    ("entry", "value", "found"),
    [("observation", torch.zeros(3), r"\(3,\)"), ("reward", torch.zeros(2), r"\(2,\)")],
)
def test_data_of_a_wrong_shape_names_key_expected_and_found(kind: Any, entry: str, value: Any, found: str) -> None:
    long = partial(CountingEnv, max_steps=100)
    env = kind(4, [partial(Misfit, entry, value) if row == 2 else long for row in range(4)])

    with pytest.raises(Exception, match=rf"'{entry}'.*\(1,\).*found.*{found}") as caught:
        env.rollout(5, break_when_any_done=False)

    if isinstance(caught.value, WorkerError):
        assert caught.value.env == 2
    env.close()


class WrongArrays(ArrayEnv):
    """Writes an observation of a wrong shape, or of a wrong dtype, into its row."""

    def __init__(self, value: Any) -> None:
        super().__init__()
        self.observation_spec = Composite(observation=Bounded(-1, 1, shape=(3,)))
        self.action_spec = Categorical(2)
        self.reward_spec = Unbounded((1,))
        self.value = value

    def reset_into(self, out: Any, seed: int | None, env_info: Any) -> None:
        out["observation"][...] = 0

    def step_into(self, action: Any, out: Any) -> tuple[bool, bool]:
        out["observation"][...] = self.value
        out["reward"][...] = 0
        return False, False


def test_an_array_that_does_not_fit_names_its_environment() -> None:
    """An array that does not fit its row is an error of its environment."""
    env = ParallelEnv(2, [partial(WrongArrays, 0.0), partial(WrongArrays, [1.0, 2.0])], num_processes=2)

    with pytest.raises(WorkerError, match=r"environment 1.*could not broadcast input array from shape \(2,\)") as e:
        env.rollout(3)

    assert "step_into" in e.value.remote_traceback
    env.close()
