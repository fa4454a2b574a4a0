"""Ctrl-C at any line of a collector: no trajectory has a gap, or a frame twice."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from tensordict import TensorDictBase

import steppe.collectors
from steppe import Collector, EnvBase, MultiaSyncDataCollector, MultiSyncDataCollector, SerialEnv
from steppe.collectors.delivery import Delivery
from steppe_agents import WholeTrajectories, whole_trajectories
from steppe_testing import ArrayCountingEnv, CountingEnv
from tests.core.collectors.buffers import Buffer

_FOLDER = str(Path(steppe.collectors.__file__).parent)
#: Nothing of the collector's own state changes in these, and each line there would cost a run.
_ELSEWHERE = ("planning.py", "sole_use.py", "arguments.py")
#: Modules of other folders that keep the frames of a batch.
_FRAMES = ("row_frames.py", "td_frames.py", "whole_trajectories.py")


@contextmanager
def interrupted_at(number: int) -> Iterator[list[str]]:
    """Send Ctrl-C at the line of this number, counted over the collectors' own code; yields where."""
    seen, where = 0, []

    def line(frame: Any, event: str, argument: Any) -> Any:
        nonlocal seen
        if event == "line" and not where:
            seen += 1
            if seen == number:
                where.append(f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}")
                signal.raise_signal(signal.SIGINT)  # as a terminal does: code that puts Ctrl-C off does so here too
        return line

    def call(frame: Any, event: str, argument: Any) -> Any:
        path = Path(frame.f_code.co_filename)
        is_ours = str(path.parent) == _FOLDER or path.name in _FRAMES
        return line if is_ours and path.name not in _ELSEWHERE else None

    before = sys.gettrace()
    sys.settrace(call)
    try:
        yield where
    finally:
        sys.settrace(before)


def make() -> EnvBase:
    return SerialEnv(2, [lambda: ArrayCountingEnv(3), lambda: ArrayCountingEnv(7)])


def batches(collector: Any, number: int, n: int = 5) -> tuple[list[Any], list[str]]:
    """Some batches, the second one of which is interrupted at a line."""
    found = [next(collector)]
    try:
        with interrupted_at(number) as where:
            found.append(next(collector))
    except KeyboardInterrupt:
        pass
    return found + [next(collector) for _ in range(n)], where


def frames_by_trajectory(found: list[TensorDictBase]) -> dict[int, list[float]]:
    seen: dict[int, list[float]] = {}
    for batch in found:
        ids = batch["collector", "traj_ids"].reshape(-1, batch.shape[-1])
        counts = batch["observation"].reshape(-1, batch.shape[-1])
        for row in range(len(ids)):
            for number, count in zip(ids[row].tolist(), counts[row].tolist(), strict=True):
                seen.setdefault(number, []).append(count)
    return seen


def assert_no_gap(found: list[TensorDictBase], where: list[str]) -> None:
    for counts in frames_by_trajectory(found).values():
        assert counts == list(range(int(counts[0]), int(counts[0]) + len(counts))), where


@pytest.mark.slow
def test_no_trajectory_has_a_gap_wherever_ctrl_c_comes() -> None:
    for number in range(1, 4000, 5):
        with Collector(make, frames_per_batch=8, seed=0) as collector:
            found, where = batches(collector, number)
            assert_no_gap(found, where)
            assert collector.stats()["frames"] >= 8 * len(found)
        if not where:
            assert number > 60, "all lines were tried"
            return


@pytest.mark.slow
@pytest.mark.parametrize("write", [None, 1])
def test_whole_trajectories_are_whole_wherever_ctrl_c_comes(write: int | None) -> None:
    for number in range(1, 4000, 5):
        buffer = Buffer() if write else None
        arguments: dict[str, Any] = {"trajs_per_write": 1, "replay_buffer": buffer} if write else {}
        with Collector(
            make, frames_per_batch=4, trajs_per_batch=1, traj_format="cat", seed=0, **arguments
        ) as collector:
            found, where = batches(collector, number, 9)
        if buffer is not None:
            found = buffer.extended
        lengths = set()
        for data in found:
            counts = data["observation"].flatten().tolist()
            assert counts == list(range(len(counts))), where
            lengths.add(len(counts))
        assert lengths == {3, 7}, where
        numbers = [int(data["collector", "traj_ids"][0]) for data in found]
        if write is None:
            assert len(set(numbers)) == len(numbers), where
        if not where:
            return


def test_ctrl_c_while_trajectories_are_cut_loses_no_frame(monkeypatch: pytest.MonkeyPatch) -> None:
    with Collector(make, frames_per_batch=10, total_frames=40, seed=0) as collector:
        given = list(collector)
    ended = sum(int(batch["next", "done"].sum()) for batch in given)
    with Collector(make, frames_per_batch=10, trajs_per_batch=ended, traj_format="cat") as collector:
        whole = WholeTrajectories(collector)
    joined, left = whole_trajectories._concatenated, [3]

    def interrupts(pieces: list[TensorDictBase]) -> TensorDictBase:
        left[0] -= 1
        if not left[0]:
            raise KeyboardInterrupt
        return joined(pieces)

    monkeypatch.setattr(whole_trajectories, "_concatenated", interrupts)
    for batch in given:
        try:
            whole.state = whole.with_batch(batch)
        except KeyboardInterrupt:
            whole.state = whole.with_batch(batch)
    assert left[0] < 0
    assert len(whole) == ended
    data = whole.waiting()
    assert data is not None
    for counts in frames_by_trajectory([data]).values():
        assert counts in (list(range(3)), list(range(7)))
    assert int(data["next", "done"].sum()) == ended


def test_the_last_batch_is_delivered_after_ctrl_c() -> None:
    calls = []

    def interrupts(data: TensorDictBase) -> TensorDictBase:
        calls.append(data)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return data

    with Collector(CountingEnv(30), frames_per_batch=6, total_frames=12, postproc=interrupts) as collector:
        found = [next(collector)]
        with pytest.raises(KeyboardInterrupt):
            next(collector)
        found += list(collector)
    assert torch.cat(found)["observation"].flatten().tolist() == list(range(12))


def test_a_batch_that_postproc_refuses_ends_its_trajectories() -> None:
    calls = []

    def refuses(data: TensorDictBase) -> TensorDictBase:
        calls.append(data)
        if len(calls) == 2:
            raise ValueError("no")
        return data

    for kind in (lambda **kwargs: Collector(make, **kwargs), lambda **kwargs: MultiSyncDataCollector([make], **kwargs)):
        calls.clear()
        with kind(frames_per_batch=4, postproc=refuses) as collector:
            found = [next(collector)]
            with pytest.raises(ValueError, match="no"):
                next(collector)
            found += [next(collector) for _ in range(4)]
        assert_no_gap(found, [])
        assert found[1]["observation"][..., 0, :].eq(0).all()


@pytest.mark.parametrize("workers", [False, True])
def test_a_batch_lost_at_delivery_leaves_no_gap(workers: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    hand_over, calls = Delivery.hand_over, []

    def interrupted(self: Delivery) -> TensorDictBase | None:
        batch = hand_over(self)
        calls.append(batch)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return batch

    monkeypatch.setattr(Delivery, "hand_over", interrupted)
    kind: Any = MultiSyncDataCollector if workers else Collector
    factory: Any = partial(ArrayCountingEnv, 30)
    with kind([factory] if workers else factory, frames_per_batch=8) as collector:
        found = [next(collector)]
        with pytest.raises(KeyboardInterrupt):
            next(collector)
        found += [next(collector) for _ in range(3)]
    assert_no_gap(found, [])


@pytest.mark.slow
@pytest.mark.parametrize("kind", [MultiSyncDataCollector, MultiaSyncDataCollector])
def test_batches_of_workers_have_no_gap_wherever_ctrl_c_comes(kind: Any) -> None:
    with kind([make] * 2, frames_per_batch=8) as collector:
        for number in range(1, 400, 2):
            found, where = batches(collector, number, 3)
            assert_no_gap(found, where)
            if not where:
                return
