"""Measure collectors over actors and nodes beside worker processes, and beside what Ray carries alone.

    python benchmarks/bench_distributed.py [--rounds 7] [--rows sizes inference weights torchrl] [--write FILE.json]
                                           [--peer-python PYTHON]

Contestants take turns in short slices, and the table shows the median of each. All have two workers. ``--write``
replaces the measured rows of a JSON file: ``distributed.json`` has the figures of docs/performance.md.

* sizes: frames of 1 kB (with steps of 0 and of 100 us) and 100 kB, and batches of 1 MB. ``RayCollector`` over
  ``MultiSyncDataCollector`` (lockstep) or ``MultiaSyncDataCollector`` (whichever is ready) at equal workers and
  batches; and over Ray alone, where actors put the same bytes, made once, and this process gets them.
* inference: 16 environments whose steps take no time or wait, with small and large policies: served in one place, or a
  copy in each worker, which is a thread or a process.
* weights: an update of 10 MB to 8 actors, from the call until all have acted with it, and how often it is stored.
* torchrl: collectors over actors and over processes in lockstep, of this library and of TorchRL, whose interpreter
  (``--peer-python``) has Ray too.
"""

from __future__ import annotations

import argparse
import json
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import torch
from common import Contest, show
from distributed_cases import Array, Frames, RayAlone, cluster, frames_per_second, nbytes, small_actors
from peer import Peer
from tensordict.nn import TensorDictModule
from torch import nn

from steppe import AsyncBatchedCollector, MultiaSyncDataCollector, MultiSyncDataCollector
from steppe_ray import RayCollector
from steppe_ray.ray_group import RayGroup

if TYPE_CHECKING:
    import ray

WORKERS = 2

#: Figures by contestant, and those of each case of a row.
Figures: TypeAlias = dict[str, float]
Cases: TypeAlias = dict[str, Figures]

#: Bytes of a frame, seconds of a step, frames of a batch of all workers.
SIZES = {
    "1 kB, batches of 4,000 frames": (1_000, 0.0, 4_000),
    "1 kB, batches of 4,000 frames, steps of 100 us": (1_000, 1e-4, 4_000),
    "1 kB, batches of 1 MB": (1_000, 0.0, 500),
    "100 kB, batches of 200 frames": (100_000, 0.0, 200),
}


def sizes(rounds: int) -> Cases:
    results: Cases = {}
    for name, (size, seconds, frames) in SIZES.items():
        make = _Maker(size, seconds)
        for sync in (True, False):
            # frames_per_batch is that of all workers in lockstep, otherwise of each.
            per_batch = frames if sync else frames // WORKERS
            local = (MultiSyncDataCollector if sync else MultiaSyncDataCollector)(
                [make] * WORKERS, frames_per_batch=per_batch
            )
            remote = RayCollector(
                [make] * WORKERS, sync=sync, remote_configs=small_actors(), frames_per_batch=per_batch
            )
            with local, remote:
                batch_bytes = nbytes(next(remote)) // (WORKERS if sync else 1)
                alone = RayAlone(WORKERS, batch_bytes, frames // WORKERS, sync=sync)
                contest = Contest(name, "frames/s")
                contest.add("processes", frames_per_second(local))
                contest.add("RayCollector", frames_per_second(remote))
                contest.add("Ray alone", alone)
                medians = contest.run(rounds)
            medians["MB/s"] = medians["RayCollector"] * batch_bytes * WORKERS / frames / 1e6
            results[f"{name}, {'lockstep' if sync else 'whichever is ready'}"] = medians
            print(name, {key: round(value) for key, value in medians.items()}, flush=True)
    columns = ["frames", "processes", "RayCollector", "Ray alone", "over processes", "over Ray alone", "MB/s"]
    rows = [
        [
            name,
            *(f"{each[key]:,.0f}" for key in ("processes", "RayCollector", "Ray alone")),
            f"{each['RayCollector'] / each['processes']:.2f}",
            f"{each['RayCollector'] / each['Ray alone']:.2f}",
            f"{each['MB/s']:,.0f}",
        ]
        for name, each in results.items()
    ]
    show("RayCollector, frames per second", columns, rows)
    return results


class Waiting(Frames):
    """An environment whose steps wait for a number of seconds, for a simulator elsewhere."""

    def __init__(self, size: int, wait: float) -> None:
        super().__init__(size)
        self._wait = wait

    def step_into(self, action: int, out: dict[str, Array]) -> tuple[bool, bool]:
        time.sleep(self._wait)
        return super().step_into(action, out)


class _Maker:
    def __init__(self, size: int, seconds: float = 0.0, waits: bool = False) -> None:
        self.size, self.seconds, self.waits = size, seconds, waits

    def __call__(self) -> Frames:
        return (Waiting if self.waits else Frames)(self.size, self.seconds)


class Net(nn.Module):
    """A policy of two layers with ``width`` units."""

    def __init__(self, width: int) -> None:
        super().__init__()
        layers = [nn.Linear(64, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh(), nn.Linear(width, 2)]
        self.net = nn.Sequential(*layers)

    def forward(self, observation: torch.Tensor) -> torch.Tensor:
        return self.net(observation.float()).argmax(-1)


#: Milliseconds that a step waits, and units of a layer of the policy.
INFERENCE = ((0, 32), (2, 32), (2, 1024), (2, 2048), (10, 2048))


def inference(rounds: int) -> Cases:
    results: Cases = {}
    for wait, width in INFERENCE:
        policy = TensorDictModule(Net(width), ["observation"], ["action"])
        weights = sum(parameter.numel() for parameter in policy.parameters())
        contest = Contest("", "frames/s")
        makers = [_Maker(64, wait * 1e-3, waits=wait > 0)] * 16
        collectors = [
            AsyncBatchedCollector(makers, policy, inference=where, backend=backend, frames_per_batch=16)
            for backend in ("threading", "multiprocessing")
            for where in ("server", "worker")
        ]
        names = ["served, threads", "in workers, threads", "served, processes", "in workers, processes"]
        try:
            for name, collector in zip(names, collectors, strict=True):
                contest.add(name, frames_per_second(collector))
            medians = contest.run(rounds)
            counts = collectors[2].stats()
            medians["rows in a call"] = counts["served_rows"] / counts["served_calls"]
        finally:
            for collector in collectors:
                collector.shutdown()
        results[f"steps of {wait} ms, {weights / 1e6:.2g} million weights"] = medians
        print(wait, width, {key: round(value) for key, value in medians.items()}, flush=True)
    columns = ["environments, policy", *next(iter(results.values()))]
    rows = [[name, *(f"{value:,.0f}" for value in each.values())] for name, each in results.items()]
    show("16 environments, frames per second", columns, rows)
    return results


def weights(rounds: int) -> Cases:
    policy = TensorDictModule(Net(1540), ["observation"], ["action"])  # 10 MB
    publish, stored = RayGroup.publish, []

    def counted(group: RayGroup, values: dict[str, torch.Tensor]) -> list[ray.ObjectRef]:
        stored.append(values)
        return publish(group, values)

    RayGroup.publish = counted  # type: ignore[method-assign]
    with RayCollector(
        [_Maker(64)] * 8, policy, sync=True, remote_configs=small_actors(), frames_per_batch=80
    ) as collector:
        next(collector)
        before = len(stored)
        with_update, without = [], []
        for _ in range(rounds):
            begun = time.perf_counter()
            collector.update_policy_weights_()
            next(collector)
            between = time.perf_counter()
            next(collector)
            with_update.append(between - begun)
            without.append(time.perf_counter() - between)
    medians = {
        "ms of a batch with an update": sorted(with_update)[rounds // 2] * 1e3,
        "ms of a batch without": sorted(without)[rounds // 2] * 1e3,
        "stored for each update": (len(stored) - before) / rounds,
    }
    show("An update of 10 MB to 8 actors", list(medians), [[f"{value:.1f}" for value in medians.values()]])
    return {"10 MB, 8 actors": medians}


def torchrl(rounds: int, python: str) -> Cases:
    results: Cases = {}
    for size, frames in ((1_000, 4_000), (100_000, 200)):
        make = _Maker(size)
        peer = Peer(python, str(size), WORKERS, kind="ray", extra=[str(frames)])
        local = MultiSyncDataCollector([make] * WORKERS, frames_per_batch=frames)
        try:
            with (
                local,
                RayCollector(
                    [make] * WORKERS, sync=True, remote_configs=small_actors(), frames_per_batch=frames
                ) as remote,
            ):
                contest = Contest("", "frames/s")
                contest.add("processes", frames_per_second(local))
                contest.add("RayCollector", frames_per_second(remote))
                for label in ("torchrl processes", "torchrl RayCollector"):
                    contest.add(label, partial(peer.slice, label))
                results[f"{size // 1000} kB, batches of {frames:,} frames"] = contest.run(rounds)
        finally:
            peer.close()
    columns = ["frames", *next(iter(results.values()))]
    rows = [[name, *(f"{value:,.0f}" for value in each.values())] for name, each in results.items()]
    show("lockstep, frames per second", columns, rows)
    return results


ROWS = {"sizes": sizes, "inference": inference, "weights": weights}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--rows", nargs="*", choices=[*ROWS, "torchrl"], default=list(ROWS))
    parser.add_argument("--peer-python", help="an interpreter with TorchRL and Ray, for the row torchrl")
    parser.add_argument("--write", type=Path, metavar="FILE.json")
    parser.add_argument("--sizes", nargs="*", choices=SIZES, default=list(SIZES), help="cases of the row sizes")
    args = parser.parse_args()
    if "torchrl" in args.rows and not args.peer_python:
        parser.error("the row torchrl needs --peer-python, an interpreter with TorchRL and Ray")
    for name in SIZES.keys() - set(args.sizes):
        del SIZES[name]
    written: dict[str, Cases] = json.loads(args.write.read_text()) if args.write and args.write.exists() else {}
    with cluster():
        for row in args.rows:
            measured = torchrl(args.rounds, args.peer_python) if row == "torchrl" else ROWS[row](args.rounds)
            rounded = {
                name: {key: float(f"{value:.4g}") for key, value in each.items()} for name, each in measured.items()
            }
            written[row] = {**written.get(row, {}), **rounded}
            if args.write:
                args.write.write_text(json.dumps(written, indent=1) + "\n")


if __name__ == "__main__":
    main()
