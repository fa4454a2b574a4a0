"""Batches leave no process, thread, descriptor or shared-memory file, however they end."""

from __future__ import annotations

import gc
import os
import resource
import threading
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from steppe import ParallelEnv, SerialEnv, StepCounter, TransformedEnv
from steppe.errors import ClosedError
from steppe_testing import ArrayCountingEnv, CountingEnv, TextCountingEnv
from tests.limits import CHILD

pytestmark = pytest.mark.usefixtures("nothing_left")

KINDS: dict[str, Callable[..., Any]] = {
    "arrays": lambda: ParallelEnv(3, ArrayCountingEnv, num_processes=2),
    "tensordicts": lambda: ParallelEnv(3, CountingEnv, num_processes=2),
    "messages": lambda: ParallelEnv(3, TextCountingEnv, num_processes=2),
    "a share of the caller": lambda: ParallelEnv(3, ArrayCountingEnv, num_processes=2, caller_share=True),
    "forked from here": lambda: ParallelEnv(3, ArrayCountingEnv, num_processes=2, mp_start_method="fork"),
    "transformed": lambda: TransformedEnv(ParallelEnv(3, ArrayCountingEnv, num_processes=2), StepCounter()),
    "serial": lambda: SerialEnv(3, CountingEnv),
}
every_kind = pytest.mark.parametrize("make", KINDS.values(), ids=KINDS)


@every_kind
def test_closing_twice_leaves_nothing(make: Callable[[], Any]) -> None:
    env = make()
    env.rollout(3)

    env.close()
    env.close(raise_if_closed=False)

    with pytest.raises(ClosedError):
        env.close(raise_if_closed=True)
    assert env.is_closed


@every_kind
def test_forgetting_leaves_nothing(make: Callable[[], Any]) -> None:
    env = make()
    env.rollout(3)
    seen = weakref.ref(env)

    del env
    gc.collect()

    assert seen() is None


def test_a_batch_in_a_cycle_leaves_nothing() -> None:
    env = ParallelEnv(2, ArrayCountingEnv, num_processes=1)
    env.rollout(3)
    env.__dict__["itself"] = env
    seen = weakref.ref(env)

    del env
    gc.collect()

    assert seen() is None


def test_a_batch_that_was_never_used_starts_nothing(descendants: Callable[[], set[int]]) -> None:
    before = descendants()

    env = ParallelEnv(2, ArrayCountingEnv)

    assert descendants() <= before
    env.close()


def test_data_outlives_its_batch() -> None:
    env = ParallelEnv(2, lambda: ArrayCountingEnv(pixels=(8, 8)), num_processes=2)
    data = env.rollout(4)
    storage = env.storage
    env.close()
    del env
    gc.collect()

    assert data["pixels"][:, 3].unique().tolist() == [3]
    assert storage.tensors["pixels"].shape[0] == 2  # shared memory stays mapped as long as it is seen


def test_rounds_of_batches_leave_nothing() -> None:
    kinds = [make for name, make in KINDS.items() if name != "serial"]
    for n in range(50):
        env = kinds[n % len(kinds)]()
        env.rollout(2)
        if n % 3:
            env.close()


def test_batches_of_threads_at_the_same_time_leave_nothing() -> None:
    shapes: list[Any] = []

    def use() -> None:
        for method in ("forkserver", "fork"):
            with ParallelEnv(2, ArrayCountingEnv, num_processes=2, mp_start_method=method) as env:
                shapes.append(env.rollout(5).shape)

    threads = [threading.Thread(target=use) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(CHILD)

    assert shapes == [(2, 5)] * 8


def test_many_batches_at_once_leave_nothing() -> None:
    envs = [ParallelEnv(2, ArrayCountingEnv, num_processes=1) for _ in range(12)]
    for env in envs:
        env.reset()
    for env in envs[::2]:
        env.close()

    assert all(env.rollout(3).shape == (2, 3) for env in envs[1::2])
    for env in envs[1::2]:
        env.close()


EXITS = """
import os, sys, threading
from steppe import ParallelEnv
from steppe_testing import ArrayCountingEnv

def stepping(env):
    while True:
        try:
            env.rollout(3)
        except Exception:
            return  # its workers were ended

def left_open(**kwargs):
    env = ParallelEnv(2, ArrayCountingEnv, num_processes=2, **kwargs)
    env.reset()
    return env

name = left_open()
cycle = [left_open(mp_start_method="fork")]
cycle.append(cycle)
shared = left_open(caller_share=True)
if os.fork() == 0:
    sys.exit()  # a copy that ends in an orderly way: its exit handlers run
os.wait()
print(tuple(name.rollout(3).shape), flush=True)
threading.Thread(target=stepping, args=(left_open(),), daemon=True).start()
"""


def test_an_interpreter_that_ends_leaves_nothing(run_script: Callable[..., Any]) -> None:
    shm = set(os.listdir("/dev/shm"))
    process = run_script(EXITS)
    out, err = process.communicate(timeout=CHILD)  # run_script then looks for processes that are left

    assert (out, err, process.returncode) == ("(2, 3)\n", "", 0)
    assert not [name for name in set(os.listdir("/dev/shm")) - shm if "steppe" in name or str(process.pid) in name]


def test_workers_hold_no_descriptors_of_other_batches() -> None:
    with ParallelEnv(2, ArrayCountingEnv, num_processes=2) as first, ParallelEnv(2, ArrayCountingEnv) as second:
        first.reset()
        second.reset()
        counts = {len(list(Path(f"/proc/{pid}/fd").iterdir())) for pid in (*first.worker_pids, *second.worker_pids)}

    assert len(counts) == 1


def test_too_few_descriptors_raise_and_leave_nothing() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    env = ParallelEnv(20, ArrayCountingEnv, num_processes=20)
    with ParallelEnv(1, ArrayCountingEnv) as other:
        other.reset()  # the fork server is there
        resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/proc/self/fd")) + 20, hard))
        try:
            with pytest.raises(OSError, match=r"after the start of [1-9]\d* of 20 workers.*num_processes=.*ulimit -n"):
                env.reset()
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))

    assert env.rollout(3).shape == (20, 3)
    env.close()
