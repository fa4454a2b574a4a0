"""Measure replay buffers beside numpy, cpprb, Stable-Baselines3 and TorchRL.

    python benchmarks/bench_replay.py [--rows vectors images extend prioritized slices filling]
                                      [--rounds 9] [--cpu] [--peer-python PYTHON] [--write FILE]

Contestants take turns in short slices, and the table shows the median of each and its ratio to numpy (or to cpprb,
which the budget names for writes and priorities). All hold the same entries: observations before and after the step,
action, reward and three flags. cpprb and Stable-Baselines3 are left out if they are not installed here.
``--peer-python`` names an interpreter with TorchRL, which runs in a process of its own. ``--cpu`` measures CPU time,
on a busy machine. ``--write`` replaces the measured rows of a JSON file; ``replay.json`` has the figures of
docs/performance.md.

* vectors: sample 256 of 1,000,000 rows with observations of 11 numbers.
* images: sample 256 of 20,000 rows with images 84x84x4, two of them.
* extend: write 1,000 rows with vectors to a full buffer, so that its memory was written before.
* prioritized: sample 256 of 1,000,000 rows, and set their priorities.
* slices: sample 32 slices of 8 steps; numpy draws any starting row, and does not look for ends.
* filling: CPU time of the caller for 1,000 frames of two workers of a MultiaSyncDataCollector, which write the buffer
  themselves, or send their batches to the caller.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Protocol, TypeVar, cast

import numpy as np
import torch
from common import Contest, show
from peer import Peer
from replay_cases import (
    BATCH,
    CLOCK,
    LENGTH,
    N_IMAGES,
    N_VECTORS,
    SLICES,
    Entries,
    chunks,
    entries,
    slice_of,
    transitions,
)
from tensordict import TensorDictBase

from steppe import MultiaSyncDataCollector
from steppe_replay import (
    BufferWriter,
    LazyTensorStorage,
    ReplayBuffer,
    SliceSampler,
    Storage,
    TensorDictPrioritizedReplayBuffer,
)

Buffer = TypeVar("Buffer", bound=ReplayBuffer)


class CpprbBuffer(Protocol):
    """What a buffer of cpprb, which has no types, has."""

    def add(self, **data: np.ndarray) -> object: ...

    def sample(self, n: int) -> dict[str, np.ndarray]: ...

    def update_priorities(self, indexes: np.ndarray, priorities: np.ndarray) -> object: ...


class Sb3Buffer(Protocol):
    """What a buffer of Stable-Baselines3 has; it is not installed where types are checked."""

    observations: np.ndarray
    next_observations: np.ndarray
    pos: int
    full: bool

    def sample(self, n: int) -> object: ...


def filled(buffer: Buffer, data: Entries) -> Buffer:
    """Fill a buffer of steppe with all entries, and return it."""
    for part in chunks(data, 10_000):
        buffer.extend(transitions(part))
    return buffer


def room_for(data: Entries, compact: tuple[str, ...] = ()) -> Storage:
    """Return a storage with as many rows as entries."""
    return LazyTensorStorage(len(data["obs"]), compact=compact)


def cpprb_buffer(data: Entries, prioritized: bool = False) -> CpprbBuffer:
    """Return a full buffer of cpprb."""
    import cpprb

    env = {name: {"shape": value.shape[1:], "dtype": value.dtype} for name, value in data.items()}
    kind = cpprb.PrioritizedReplayBuffer if prioritized else cpprb.ReplayBuffer
    buffer = cast(CpprbBuffer, kind(len(data["obs"]), env))
    for part in chunks(data, 10_000):
        buffer.add(**part)
    return buffer


def sb3_buffer(data: Entries) -> Sb3Buffer:
    """Return a full buffer of Stable-Baselines3."""
    from gymnasium.spaces import Box
    from stable_baselines3.common.buffers import ReplayBuffer as TheirBuffer

    shape = data["obs"].shape[1:]
    images = data["obs"].dtype == np.uint8
    space = Box(0, 255, shape, np.uint8) if images else Box(-np.inf, np.inf, shape, np.float32)
    buffer = cast(Sb3Buffer, TheirBuffer(len(data["obs"]), space, Box(-1, 1, (3,)), device="cpu"))
    buffer.observations[:, 0], buffer.next_observations[:, 0] = data["obs"], data["next_obs"]
    buffer.pos, buffer.full = 0, True
    return buffer


def sampling(contest: Contest, data: Entries) -> None:
    """Add contestants that sample."""
    n, generator = len(data["obs"]), np.random.default_rng(0)

    def fancy() -> list[np.ndarray]:
        index = generator.integers(n, size=BATCH)
        return [value[index] for value in data.values()]

    room = {name: np.empty((BATCH, *value.shape[1:]), value.dtype) for name, value in data.items()}

    def take() -> list[np.ndarray]:
        index = generator.integers(n, size=BATCH)
        return [value.take(index, 0, room[name], "clip") for name, value in data.items()]

    contest.add("numpy", slice_of(fancy))
    contest.add("numpy take(out=)", slice_of(take))
    contest.add("steppe", slice_of(filled(ReplayBuffer(storage=room_for(data), batch_size=BATCH), data).sample))
    if find_spec("cpprb"):
        buffer = cpprb_buffer(data)
        contest.add("cpprb", slice_of(lambda: buffer.sample(BATCH)))
    if find_spec("stable_baselines3"):
        other = sb3_buffer(data)
        contest.add("SB3", slice_of(lambda: other.sample(BATCH)))


def vectors(contest: Contest) -> None:
    sampling(contest, entries(N_VECTORS, (11,), np.float32))


def images(contest: Contest) -> None:
    data = entries(N_IMAGES, (4, 84, 84), np.uint8)
    sampling(contest, data)
    compact = filled(ReplayBuffer(storage=room_for(data, ("observation",)), batch_size=BATCH), data)
    contest.add("steppe, frames stored once", slice_of(compact.sample))


def extend(contest: Contest) -> None:
    data = entries(1_000, (11,), np.float32)
    full = entries(N_VECTORS, (11,), np.float32)
    room = {name: value.copy() for name, value in full.items()}
    at = 0

    def copy() -> None:
        nonlocal at
        for name, value in data.items():
            room[name][at : at + 1_000] = value
        at = (at + 1_000) % N_VECTORS

    contest.add("numpy", slice_of(copy))
    batch = transitions(data)
    for name, shared in (("steppe", False), ("steppe, shared memory", True)):
        buffer = filled(ReplayBuffer(storage=LazyTensorStorage(N_VECTORS, shared=shared)), full)
        contest.add(name, slice_of(lambda buffer=buffer: buffer.extend(batch)))  # type: ignore[misc]
    if find_spec("cpprb"):
        other = cpprb_buffer(full)
        contest.add("cpprb", slice_of(lambda: other.add(**data)))


def prioritized(contest: Contest) -> None:
    data = entries(N_VECTORS, (11,), np.float32)
    buffer = filled(
        TensorDictPrioritizedReplayBuffer(alpha=0.6, beta=0.4, storage=room_for(data), batch_size=BATCH), data
    )
    errors = torch.rand(BATCH)

    def turn() -> None:
        batch = buffer.sample()
        buffer.update_priority(batch["index"], errors)

    contest.add("steppe", slice_of(turn))
    if find_spec("cpprb"):
        other, numbers = cpprb_buffer(data, prioritized=True), errors.numpy()

        def their_turn() -> None:
            batch = other.sample(BATCH)
            other.update_priorities(batch["indexes"], numbers)

        contest.add("cpprb", slice_of(their_turn))


def slices(contest: Contest) -> None:
    data = entries(N_VECTORS, (11,), np.float32)
    generator = np.random.default_rng(0)

    def fancy() -> list[np.ndarray]:
        start = generator.integers(N_VECTORS - LENGTH, size=SLICES)
        index = (start[:, None] + np.arange(LENGTH)).ravel()
        return [value[index] for value in data.values()]

    contest.add("numpy", slice_of(fancy))
    buffer = ReplayBuffer(storage=room_for(data), sampler=SliceSampler(num_slices=SLICES), batch_size=BATCH)
    contest.add("steppe", slice_of(filled(buffer, data).sample))


class ThroughTheCaller(ReplayBuffer):
    """A buffer that hands out no writers."""

    def writers(self, n: int, example: TensorDictBase | None = None) -> list[BufferWriter] | None:
        return None


def filling(contest: Contest) -> None:
    for name, kind in (("through the caller", ThroughTheCaller), ("steppe, workers write", ReplayBuffer)):
        buffer = kind(storage=LazyTensorStorage(N_VECTORS))
        collector = MultiaSyncDataCollector(["gym:HalfCheetah-v5"] * 2, frames_per_batch=1_000, replay_buffer=buffer)
        CLOSERS.append(collector.shutdown)
        for _ in range(4):
            next(collector)

        def slice_(collector: MultiaSyncDataCollector = collector) -> float:
            start = time.process_time()
            for _ in range(4):
                next(collector)
            return (time.process_time() - start) / 4 * 1e6

        contest.add(name, slice_)


ROWS = {each.__name__: each for each in (vectors, images, extend, prioritized, slices, filling)}
CLOSERS: list[Callable[[], object]] = []


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", nargs="*", default=list(ROWS), choices=list(ROWS))
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--cpu", action="store_true")
    parser.add_argument("--peer-python", default=None)
    parser.add_argument("--write", type=Path, default=None)
    args = parser.parse_args()

    torch.set_num_threads(1)
    clock = "cpu" if args.cpu else "wall"
    os.environ[CLOCK] = clock
    table, measured = [], {}
    for row in args.rows:
        contest = Contest(row, "us")
        ROWS[row](contest)
        peer = None
        if args.peer_python and row not in ("prioritized", "filling"):
            peer = Peer(args.peer_python, row, 20, kind="replay")
            contest.add("TorchRL", lambda peer=peer, row=row: peer.slice(row))  # type: ignore[misc]
        figures = contest.run(args.rounds)
        if peer is not None:
            peer.close()
        while CLOSERS:
            CLOSERS.pop()()
        measured[row] = {name: round(figure, 1) for name, figure in figures.items()}
        base = "cpprb" if row in ("extend", "prioritized") and "cpprb" in figures else next(iter(figures))
        for name, figure in figures.items():
            table.append([row, name, f"{figure:.1f}", f"{figure / figures[base]:.2f} of {base}"])
    show("Microseconds for a call", ["row", "buffer", "us", "ratio"], table)
    if args.write is not None:
        before = json.loads(args.write.read_text())["rows"] if args.write.exists() else {}
        rows = {row: {"clock": clock, **figures} for row, figures in measured.items()}
        written = {"unit": "us", "rows": {**before, **rows}}
        args.write.write_text(json.dumps(written, indent=1) + "\n")


if __name__ == "__main__":
    main()
