"""Ctrl-C in a running collector leaves no gap in a trajectory."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from functools import partial
from types import FrameType
from typing import Any

import pytest
from tensordict import TensorDictBase

from steppe import (
    Collector,
    MultiaSyncDataCollector,
    MultiSyncDataCollector,
    ParallelEnv,
    SerialEnv,
    StepCounter,
    TransformedEnv,
    aSyncDataCollector,
)
from steppe.errors import ClosedError
from steppe.workers import Pool
from steppe_testing import ArrayCountingEnv

pytestmark = pytest.mark.timeout(120)

LENGTH = 6


class Pressing(ArrayCountingEnv):
    """Presses Ctrl-C for a process in two of its steps.

    Args:
        pid: the process; 0 for none.
    """

    def __init__(self, pid: int) -> None:
        super().__init__(max_steps=LENGTH)
        self.pid, self.steps = pid, 0

    def step_into(self, action: Any, out: Any) -> tuple[bool, bool]:
        self.steps += 1
        if self.pid and self.steps in (14, 41):
            os.kill(self.pid, signal.SIGINT)
        return super().step_into(action, out)


def two(pid: int) -> list[Callable[[], Any]]:
    """Factories of two environments, of which the second presses."""
    return [partial(ArrayCountingEnv, LENGTH), partial(Pressing, pid)]


#: Collectors by name; each is given the process for which an environment presses, 0 for none.
KINDS: dict[str, Callable[..., Any]] = {
    "one environment": lambda pid, **more: Collector(two(pid)[1], frames_per_batch=10, **more),
    "SerialEnv": lambda pid, **more: Collector(SerialEnv(2, two(pid)), frames_per_batch=20, **more),
    "ParallelEnv": lambda pid, **more: Collector(
        ParallelEnv(2, two(pid), num_processes=2), frames_per_batch=20, **more
    ),
    "TransformedEnv": lambda pid, **more: Collector(
        TransformedEnv(ParallelEnv(2, two(pid), num_processes=1), StepCounter(4)), frames_per_batch=20, **more
    ),
    "MultiSync": lambda pid, **more: MultiSyncDataCollector(two(pid), frames_per_batch=20, **more),
    "MultiaSync": lambda pid, **more: MultiaSyncDataCollector(two(pid), frames_per_batch=10, **more),
    "aSync": lambda pid, **more: aSyncDataCollector(two(pid)[1], frames_per_batch=10, **more),
}


@pytest.fixture
def presses() -> Iterator[list[str]]:
    """Record each Ctrl-C, and whether the collector was running."""
    found: list[str] = []

    def handler(number: int, frame: FrameType | None) -> None:
        between = frame is not None and frame.f_code is collected.__code__
        found.append("between" if between else "inside")
        if not between:
            raise KeyboardInterrupt

    before = signal.signal(signal.SIGINT, handler)
    yield found
    signal.signal(signal.SIGINT, before)


def collected(collector: Any, n: int) -> list[TensorDictBase]:
    """Collect a number of batches, despite interrupts."""
    batches: list[TensorDictBase] = []
    while len(batches) < n:
        try:
            batch = next(collector)
            batches.append(batch)
        except KeyboardInterrupt:
            continue
    return batches


def gaps(batches: list[TensorDictBase]) -> list[str]:
    """List errors in trajectories: wrong starts, missing steps, steps after the end."""
    found, seen, ended = [], {}, set()
    for batch in batches:
        frames = batch.reshape(-1)
        columns = (("collector", "traj_ids"), "observation", ("next", "observation"), ("next", "done"))
        for number, before, after, done in zip(*(frames[key].flatten().tolist() for key in columns), strict=True):
            if number in ended or before != seen.get(number, 0) or after != before + 1:
                found.append(f"trajectory {number} goes from {seen.get(number)} to {before}, then {after}")
            seen[number] = after
            if done:
                ended.add(number)
    return found


@pytest.mark.parametrize("make", KINDS.values(), ids=KINDS)
def test_a_collector_works_after_ctrl_c_in_a_step(make: Any, presses: list[str]) -> None:
    with make(os.getpid()) as collector:
        batches = collected(collector, 9)
        while len(presses) < 2 and len(batches) < 1000:  # on a busy machine one worker may collect all of the nine
            batches += collected(collector, 1)

    assert len(presses) == 2
    assert gaps(batches) == []


@pytest.mark.parametrize("make", KINDS.values(), ids=KINDS)
def test_a_lost_batch_leaves_no_gap_in_trajectories(make: Any, presses: list[str]) -> None:
    calls = iter(range(100))

    def hook(batch: TensorDictBase) -> None:
        if next(calls) in (1, 4, 5):
            signal.raise_signal(signal.SIGINT)

    with make(0, post_collect_hook=hook) as collector:
        batches = collected(collector, 7)

    assert presses == ["inside"] * 3
    assert gaps(batches) == []


@pytest.mark.parametrize("name", ["SerialEnv", "MultiSync"])
def test_whole_trajectories_are_whole_after_ctrl_c(name: str, presses: list[str]) -> None:
    with KINDS[name](os.getpid(), trajs_per_batch=3, traj_format="cat") as collector:
        batches = collected(collector, 8)

    assert len(presses) == 2
    assert gaps(batches) == []
    assert all(int(batch["next", "done"].sum()) == 3 for batch in batches)


def test_ctrl_c_at_the_start_of_workers_loses_no_order(presses: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    call = Pool.call

    def press_and_call(pool: Pool, worker: int, message: object) -> None:
        signal.raise_signal(signal.SIGINT)
        call(pool, worker, message)

    with KINDS["MultiSync"](0) as collector:
        batches = collected(collector, 2)
        with monkeypatch.context() as patched:
            patched.setattr(Pool, "call", press_and_call)
            batches += collected(collector, 1)
        batches += collected(collector, 2)

    assert presses == ["inside"] * 2  # one for each worker
    assert gaps(batches) == []


@pytest.mark.parametrize("worker", [0, 1])
def test_a_request_that_was_interrupted_can_be_made_again(
    worker: int, presses: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    send = Pool.send

    def send_and_press(pool: Pool, at: int, message: Any, *fds: Any) -> None:
        if at == worker and message[0] == "call" and message[1][1] in ("request", "first_step"):
            signal.raise_signal(signal.SIGINT)
        send(pool, at, message, *fds)

    with KINDS["MultiSync"](0) as collector:
        for steps in ({}, {"n_steps": 4}):
            with monkeypatch.context() as patched:
                patched.setattr(Pool, "send", send_and_press)
                with pytest.raises(KeyboardInterrupt):
                    collector.execute(**(steps or {"n_episodes": 3}))
            found = collector.execute(**(steps or {"n_episodes": 5})).result()
            assert found.length.tolist() == ([4, 4] if steps else [LENGTH] * 5)
            assert found.steps["observation"][0, 0] == 0
        assert gaps([next(collector)]) == []


class Asleep(ArrayCountingEnv):
    """An environment that presses Ctrl-C twice in ``state_dict``, and does not return."""

    def __init__(self, pid: int) -> None:
        super().__init__()
        self.pid = pid

    def state_dict(self, *args: Any, **kwargs: Any) -> Any:
        for _ in range(2):
            os.kill(self.pid, signal.SIGINT)
            signal.sigtimedwait([signal.SIGUSR1], 0.5)
        while True:
            signal.pause()


def test_a_collector_whose_worker_hangs_was_interrupted(presses: list[str]) -> None:
    collector = MultiSyncDataCollector([partial(Asleep, os.getpid())], frames_per_batch=10)
    with pytest.raises(KeyboardInterrupt):
        collector.state_dict()

    with pytest.raises(ClosedError, match=r"was interrupted, .*: make a new one"):
        next(collector)
    collector.shutdown()
