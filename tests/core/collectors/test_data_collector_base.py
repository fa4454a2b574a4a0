"""The loop of a collector over its batches, its counts and its end, whichever backend collects."""

from __future__ import annotations

import pytest

from steppe import Collector
from steppe.collectors import BaseCollector, DataCollectorBase
from steppe.errors import ClosedError
from steppe_testing import CountingEnv


def test_total_frames_stops_a_collector() -> None:
    with Collector(CountingEnv(), frames_per_batch=5) as endless:
        assert sum(1 for _ in zip(range(7), endless, strict=False)) == 7
        with pytest.raises(TypeError, match="no length"):
            len(endless)
    with Collector(CountingEnv(), frames_per_batch=5, total_frames=20) as collector:
        assert len(collector) == 4
        next(collector)
        assert len(list(collector)) == 3, "a loop goes on where another stopped"
        assert list(collector) == []
        assert collector.next() is None
        assert collector.stats()["frames"] == 20


def test_shutdown_closes_the_environment_once() -> None:
    env = CountingEnv()
    collector = Collector(env, frames_per_batch=3)
    collector.shutdown()
    collector.close()
    assert env.is_closed
    for use in (collector.next, collector.reset, lambda: collector.set_seed(1)):
        with pytest.raises(ClosedError, match="shut down"):
            use()


def test_shutdown_can_leave_the_environment_open() -> None:
    env = CountingEnv()
    Collector(env, frames_per_batch=3).shutdown(close_env=False)
    assert not env.is_closed


def test_a_collector_is_true_whatever_its_length() -> None:
    with (
        Collector(CountingEnv(), frames_per_batch=5) as endless,
        Collector(CountingEnv(), frames_per_batch=5, total_frames=0) as empty,
    ):
        assert endless
        assert empty
        assert len(empty) == 0


@pytest.mark.filterwarnings("ignore:.*is rounded up")
def test_the_last_batch_counts_in_the_length() -> None:
    with Collector(CountingEnv(), frames_per_batch=5, total_frames=11) as collector:
        assert len(collector) == 3
        assert len(list(collector)) == 3


def test_a_collector_is_its_iterator() -> None:
    with Collector(CountingEnv(), frames_per_batch=5) as collector:
        assert iter(collector) is collector.iterator() is collector


def test_stats_count_frames_and_batches() -> None:
    with Collector(CountingEnv(), frames_per_batch=5) as collector:
        assert collector.stats() == {"frames": 0, "iterations": 0, "seconds": 0.0, "frames_per_second": 0.0}
        next(collector)
        next(collector)
        stats = collector.stats()

    assert (stats["frames"], stats["iterations"]) == (10, 2)
    assert stats["frames_per_second"] == pytest.approx(10 / stats["seconds"])


def test_a_hook_before_a_batch_that_raises_loses_no_frames() -> None:
    errors = [ZeroDivisionError(), None, None]

    def hook() -> None:
        if (error := errors.pop(0)) is not None:
            raise error

    with Collector(CountingEnv(100), frames_per_batch=3, pre_collect_hook=hook) as collector:
        with pytest.raises(ZeroDivisionError):
            next(collector)
        assert next(collector)["observation"].flatten().tolist() == [0, 1, 2]
        assert collector.stats()["frames"] == 3


def test_the_names_of_torchrl_are_one_class() -> None:
    assert BaseCollector is DataCollectorBase
    assert issubclass(Collector, DataCollectorBase)
