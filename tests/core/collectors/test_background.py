"""A collector fills a replay buffer in a thread."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import pytest

from steppe import Collector, MultiaSyncDataCollector, MultiSyncDataCollector
from steppe.errors import StateError
from steppe_testing import CountingEnv, FailingEnv
from tests.core.collectors.buffers import Buffer
from tests.limits import CHILD

KINDS: dict[str, Any] = {
    "in process": lambda **arguments: Collector(CountingEnv, **arguments),
    "MultiSync": lambda **arguments: MultiSyncDataCollector([CountingEnv] * 2, **arguments),
    "MultiaSync": lambda **arguments: MultiaSyncDataCollector([CountingEnv] * 2, **arguments),
}


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_the_buffer_fills_until_the_collector_stops(kind: Any) -> None:
    buffer = Buffer()
    collector = kind(frames_per_batch=4, replay_buffer=buffer)
    collector.start()

    assert buffer.three.wait(CHILD)
    assert collector.is_running()
    collector.async_shutdown(timeout=CHILD)
    assert not collector.is_running()
    assert collector.closed
    assert buffer.write_count == collector.stats()["frames"]


def test_the_thread_ends_after_total_frames() -> None:
    buffer = Buffer()
    with Collector(CountingEnv, frames_per_batch=4, total_frames=12, replay_buffer=buffer) as collector:
        collector.start()
        collector._thread.join(CHILD)
        assert not collector.is_running()
        assert buffer.write_count == 12


def run(collector: Any) -> None:
    collector.start()
    collector._thread.join(CHILD)


def failed() -> Any:
    """Return a collector whose thread has ended with an error."""
    collector = Collector(lambda: FailingEnv(at=2), frames_per_batch=4, replay_buffer=Buffer())
    with pytest.warns(
        RuntimeWarning,
        match=r"start\(\) has ended with RuntimeError, shutdown raises it: .*failed in step 2",
    ):
        run(collector)
    assert not collector.is_running()
    return collector


def test_shutdown_raises_the_error_of_the_thread() -> None:
    collector = failed()
    with pytest.raises(RuntimeError, match="failed in step 2"):
        collector.async_shutdown(timeout=CHILD)
    assert collector.closed
    assert collector.env.is_closed


@pytest.mark.parametrize("call", ["start", "update_policy_weights_", "pause"])
def test_the_next_call_raises_the_error_of_the_thread(call: str) -> None:
    collector = failed()
    with pytest.raises(RuntimeError, match="failed in step 2"), collector.pause() if call == "pause" else nullcontext():
        getattr(collector, call)()
    collector.shutdown()
    assert collector.closed


def test_start_needs_a_replay_buffer() -> None:
    with Collector(CountingEnv, frames_per_batch=4) as collector, pytest.raises(StateError, match="replay_buffer="):
        collector.start()
