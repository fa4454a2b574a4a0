"""Two threads use one batch or collector: the second gets an error."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from tensordict import TensorDict

from steppe import (
    Collector,
    MultiaSyncDataCollector,
    MultiSyncDataCollector,
    ParallelEnv,
    ProcessorAsyncEnvPool,
    SerialEnv,
    StepCounter,
    ThreadingAsyncEnvPool,
    TransformedEnv,
)
from steppe.errors import ClosedError, StateError
from steppe_testing import ArrayCountingEnv
from tests.core.batched.gates import Gate, HeldEnv, Thread, wait_for
from tests.limits import AT_ONCE

pytestmark = [pytest.mark.usefixtures("nothing_left"), pytest.mark.timeout(120)]


KINDS: dict[str, Callable[[Any], Any]] = {
    "ParallelEnv": lambda make: ParallelEnv(3, make, num_processes=2),
    "SerialEnv": lambda make: SerialEnv(3, make),
    "transforms": lambda make: TransformedEnv(SerialEnv(3, make), StepCounter(40)),
    "pool of threads": lambda make: ThreadingAsyncEnvPool([make] * 3),
    "pool of processes": lambda make: ProcessorAsyncEnvPool([make] * 3),
}

USES: dict[str, Callable[[Any, Any], Any]] = {
    "step": lambda env, td: env.step(td),
    "step and reset": lambda env, td: env.step_and_maybe_reset(td),
    "reset": lambda env, td: env.reset(),
    "some rows": lambda env, td: env.step_at(td[[1]], [1]),
    "seed": lambda env, td: env.set_seed(3),
    "attribute": lambda env, td: env.state_dict(),
}


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_every_method_refuses_a_second_thread(kind: Any, gate: Gate) -> None:
    with kind(partial(HeldEnv, gate, max_steps=50)) as env:
        td = env.rand_action(env.reset())
        first = Thread(lambda: env.step(td))
        wait_for(gate.reached)
        given = td.clone()
        for name, use in USES.items():
            if isinstance(env, TransformedEnv) and name == "attribute":
                continue  # those of the transforms
            with pytest.raises(StateError, match=r"while its step.* runs in thread 'stepper'.* One thread at a time"):
                use(env, given)
        gate.open()

        assert first.result()["next", "observation"].flatten().tolist() == [1, 1, 1]
        assert env.step(env.rand_action(env.reset()))["next", "observation"].flatten().tolist() == [1, 1, 1]


def test_a_view_refuses_a_second_thread(gate: Gate) -> None:
    with ParallelEnv(4, partial(HeldEnv, gate), num_processes=2) as env:
        td = env.rand_action(env.reset())
        low, high = env[:2], env[2:]
        first = Thread(lambda: low.step(td[:2]))
        wait_for(gate.reached)
        with pytest.raises(StateError, match="step_at of this ParallelEnv was called in thread 'MainThread'"):
            high.step(td[2:])
        assert not hasattr(env, "no_such_thing")
        gate.open()
        first.result()

        assert high.step(td[2:])["next", "observation"].flatten().tolist() == [1, 1]


def test_rows_of_two_threads_are_never_mixed() -> None:
    # Whoever was told tries again: what it gets is its own step.
    with ParallelEnv(2, partial(ArrayCountingEnv, 10**6, noise=True), num_processes=2) as env:
        start = env.rand_action(env.reset())
        env.step_and_maybe_reset(start.clone())

        def steps() -> list[Any]:
            found: list[Any] = []
            while len(found) < 150:
                try:
                    found.append(env.step_and_maybe_reset(start.clone())[0]["next", "observation"].flatten().tolist())
                except StateError:
                    time.sleep(0)
            return found

        threads = [Thread(steps) for _ in range(2)]
        counts = sorted(count for thread in threads for count in thread.result())

    assert counts == [[float(n)] * 2 for n in range(2, 302)]


# -- close


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_close_waits_for_the_step_of_another_thread(kind: Any, gate: Gate) -> None:
    env = kind(partial(HeldEnv, gate, max_steps=50))
    td = env.rand_action(env.reset())
    first = Thread(lambda: env.step(td))
    wait_for(gate.reached)
    threading.Timer(0.3, gate.open).start()
    env.close()

    assert first.result()["next", "observation"].flatten().tolist() == [1, 1, 1]
    with pytest.raises(ClosedError):
        env.step(td)


def test_close_ends_workers_that_hang_in_another_thread(gate: Gate) -> None:
    """close ends workers that hang in a step that another thread has called."""
    env = ParallelEnv(3, partial(HeldEnv, gate), num_processes=2, shutdown_timeout=0.2)
    td = env.rand_action(env.reset())
    first = Thread(lambda: env.step(td))
    wait_for(gate.reached)
    started = time.monotonic()
    env.close()

    assert time.monotonic() - started < AT_ONCE
    error = first.result()
    assert isinstance(error, ClosedError)
    assert "closed by another thread while it ran" in str(error)


def test_close_of_what_this_process_steps_can_be_tried_again(gate: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SerialEnv, "_shutdown_timeout", 0.1)
    env = SerialEnv(2, partial(HeldEnv, gate))
    td = env.rand_action(env.reset())
    first = Thread(lambda: env.step(td))
    wait_for(gate.reached)
    with pytest.raises(StateError, match="close of this SerialEnv was called in thread 'MainThread', while its step"):
        env.close()
    gate.open()
    first.result()

    env.close()
    with pytest.raises(ClosedError):
        env.reset()


# -- collectors


COLLECTORS: dict[str, Callable[..., Any]] = {
    "in process": lambda make: Collector(SerialEnv(2, make), frames_per_batch=8),
    "MultiSync": lambda make: MultiSyncDataCollector([make] * 2, frames_per_batch=8),
    "MultiaSync": lambda make: MultiaSyncDataCollector([make] * 2, frames_per_batch=8),
}


@pytest.mark.parametrize("kind", COLLECTORS.values(), ids=COLLECTORS)
def test_a_collector_in_a_second_thread_is_refused(kind: Any, gate: Gate) -> None:
    with kind(partial(HeldEnv, gate)) as collector:
        first = Thread(lambda: next(collector))
        wait_for(gate.reached)
        uses = [lambda: next(collector), lambda: collector.execute(n_episodes=2), lambda: collector.set_seed(1)]
        uses += [collector.state_dict, collector.reset, lambda: collector.seed_policy(1)]
        for use in uses:
            with pytest.raises(StateError, match=r"while its next runs in thread 'stepper'"):
                use()
        gate.open()

        assert first.result().numel() == 8
        assert next(collector).numel() == 8


class Stepper:
    """A policy with an attribute, made by workers."""

    eps = 0.5

    def __call__(self, tensordict: TensorDict) -> TensorDict:
        return tensordict.set("action", torch.tensor([True, False, False]))


def test_a_second_thread_cannot_set_policy_attributes(gate: Gate) -> None:
    """While one thread collects, another cannot set attributes of policies."""
    with MultiSyncDataCollector([partial(HeldEnv, gate)] * 2, policy_factory=Stepper, frames_per_batch=8) as collector:
        first = Thread(lambda: next(collector))
        wait_for(gate.reached)
        with pytest.raises(StateError, match=r"attributes= .* while its next runs in thread 'stepper'"):
            collector.update_policy_weights_(attributes={"eps": 0.1})
        gate.open()
        first.result()

        collector.update_policy_weights_(attributes={"eps": 0.1})
        assert next(collector).numel() == 8


@pytest.mark.parametrize("name", ["MultiSync", "MultiaSync"])
def test_shutdown_ends_the_wait_of_another_thread(name: str, gate: Gate) -> None:
    collector = COLLECTORS[name](partial(HeldEnv, gate))
    first = Thread(lambda: next(collector))
    wait_for(gate.reached)
    collector.shutdown(timeout=0.2)

    error = first.result()
    assert isinstance(error, ClosedError)
    assert "was shut down by another thread" in str(error)
    with pytest.raises(ClosedError):
        next(collector)
