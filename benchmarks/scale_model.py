"""How far a collector over actors goes: measured with 1, 2, 4 and 8 actors here, and a model for more machines.

    python benchmarks/scale_model.py [--measure] [--plot docs/scale.png] [--frame-bytes 28224] [--step-us 300] ...

The model takes the smallest of five limits. With ``N`` workers, ``k`` of them on a node:

* environments: a worker makes a frame in ``step`` seconds of a core;
* the learner's core: taking a batch costs ``call`` seconds, and its bytes ``1 / store`` seconds each;
* the network: all bytes of frames enter the machine of the learner at ``network`` bytes a second;
* weights: an update sends ``weights`` bytes to each node, ``updates`` times a second, out of the same machine;
* the learner: it takes ``learner`` frames a second.

``--measure`` measures the costs of the parts alone (an environment in this process, and bytes that Ray carries without
a collector), and the collector with 1, 2, 4 and 8 actors, and writes both to ``scale_measured.json``. The model is
checked against these points: here all actors and the caller share the cores of one machine, and no network is used.
Batches come in messages, as from other machines, and then through the shared memory of this one.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypedDict

import numpy as np
from common import show

MEASURED = Path(__file__).with_name("scale_measured.json")

#: Numbers of actors that are measured, and frames of a batch of one actor.
ACTORS, BATCH = (1, 2, 4, 8), 250

#: Seconds of a core for a message over a pipe, at each end.
_PIPE = 30e-6


class Measured(TypedDict):
    """What ``--measure`` writes; times are in seconds, bytes a frame or a second."""

    frame_bytes: float
    step: float
    round_trip: float
    round_trip_of_a_batch: float
    call: float
    store: float
    messages: dict[str, float]
    memory: dict[str, float]
    cores: int


@dataclass(frozen=True)
class Costs:
    """What the parts cost, in seconds and bytes.

    Attributes:
        frame_bytes: bytes of a frame in a batch.
        step: seconds of a core for a frame in a worker.
        call: seconds of the caller's core for a batch, whatever its size.
        actor_call: seconds of an actor's core for a batch.
        store: bytes a second that Ray carries through its object store.
        frames_per_batch: frames of a batch of one worker.
        cores: cores of a node.
        workers_per_node: workers on a node.
        network: bytes a second into, or out of, the machine of the learner.
        weights: bytes of an update.
        updates: updates a second.
        learner: frames a second that the learner takes; the buffer may deliver each several times.
        kept: fraction of the bytes of frames that come to the learner.
        learner_cores: cores that take batches, one in each process that learns.
        weight_sends: how often an update leaves the machine of the learner; None: once for each node.
    """

    frame_bytes: float
    step: float
    call: float
    actor_call: float
    store: float
    frames_per_batch: int = BATCH
    cores: int = 64
    workers_per_node: int = 64
    network: float = 1.25e9
    weights: float = 10e6
    updates: float = 10.0
    learner: float = 100_000.0
    kept: float = 1.0
    learner_cores: int = 1
    weight_sends: int | None = None

    @property
    def in_actor(self) -> float:
        """Seconds of a core for a frame in an actor: the step, and its part of a message."""
        return self.step + self.actor_call / self.frames_per_batch

    @property
    def in_caller(self) -> float:
        """Seconds of a core for a frame in the process of the learner."""
        return self.call / self.frames_per_batch + self.kept * self.frame_bytes / self.store


def limits(costs: Costs, workers: int) -> dict[str, float]:
    """Return the frames a second that each part allows."""
    nodes = -(-workers // costs.workers_per_node)
    busy = min(workers, nodes * costs.cores)
    sends = nodes if costs.weight_sends is None else min(nodes, costs.weight_sends)
    sent = costs.updates * costs.weights * sends
    # Updates that take longer than their interval hold up all workers that wait for them.
    on_time = min(1.0, costs.network / sent)
    return {
        "environments": busy / costs.in_actor * on_time,
        "the learner's core": costs.learner_cores / costs.in_caller,
        "the network": costs.network / (costs.frame_bytes * costs.kept),
        "the learner": costs.learner,
    }


def on_one_machine(costs: Costs, workers: int, cores: int) -> float:
    """Return the frames a second of actors that share the cores of one machine with their caller."""
    alone = min(workers, cores) / costs.in_actor
    return min(alone, 1.0 / costs.in_caller, cores / (costs.in_actor + costs.in_caller))


def in_memory(costs: Costs) -> Costs:
    """Return the costs of actors that write their batches to the memory of the caller, and say so over a pipe."""
    return replace(costs, call=_PIPE, actor_call=_PIPE, store=math.inf)


def levers(costs: Costs) -> dict[str, Costs]:
    """Return the costs with each lever, and with all of them."""
    # The learner reads only its minibatches; frames stay on the nodes that collected them.
    sampled = {"kept": 0.1}
    tree = {"weight_sends": 2}
    ten_learners = {"learner": 10 * costs.learner, "network": 10 * costs.network, "learner_cores": 10}
    return {
        "as measured": costs,
        "frames compressed 3 : 1": replace(costs, frame_bytes=costs.frame_bytes / 3, step=costs.step * 1.1),
        "weight deltas, 10 : 1": replace(costs, weights=costs.weights / 10),
        "weights over a tree": replace(costs, **tree),
        "frames kept on nodes, 1 in 10 sampled": replace(costs, **sampled),
        "kept, tree, and 10 learners": replace(costs, **sampled, **tree, **ten_learners),
    }


# -- measuring --------------------------------------------------------------------------------------------------------


def measure(frame_bytes: int, step: float, rounds: int) -> Measured:
    """Measure the parts alone, then the collector."""
    from distributed_cases import Frames, RayAlone, cluster, frames_per_second, nbytes, small_actors

    from steppe import SyncDataCollector
    from steppe_ray import RayCollector
    from steppe_ray.ray_group import RayGroup

    def make() -> Frames:
        return Frames(frame_bytes, step)

    def median(run: Callable[[], float]) -> float:
        run()
        return statistics.median(run() for _ in range(rounds))

    with SyncDataCollector(make, frames_per_batch=BATCH) as collector:
        batch_bytes = nbytes(next(collector))
        alone = 1.0 / median(frames_per_second(collector))
    points: dict[str, dict[str, float]] = {"messages": {}, "memory": {}}
    with cluster():
        # An empty message and one of a batch: the difference is what its bytes cost.
        empty, full = (median(RayAlone(1, size, 1, sync=True)) for size in (8, batch_bytes))
        cpu = {size: _cpu_of_calls(size) for size in (8, batch_bytes)}
        for way, figures in points.items():
            RayGroup.shares_batches = way == "memory"
            for n in ACTORS:
                with RayCollector([make] * n, frames_per_batch=BATCH, remote_configs=small_actors()) as collector:
                    figures[str(n)] = median(frames_per_second(collector, 0.6))
                print(n, "actors,", way, round(figures[str(n)]), "frames/s", flush=True)
    return {
        "frame_bytes": batch_bytes / BATCH,
        "step": alone,
        "round_trip": 1.0 / empty,
        "round_trip_of_a_batch": 1.0 / full,
        "call": cpu[8],
        "store": batch_bytes / max(cpu[batch_bytes] - cpu[8], 1e-6),
        "messages": points["messages"],
        "memory": points["memory"],
        "cores": len(os.sched_getaffinity(0)),
    }


def _cpu_of_calls(size: int, calls: int = 100) -> float:
    """Return the CPU seconds of this process for a call of an actor that returns ``size`` bytes."""
    import ray
    from distributed_cases import RayAlone

    run = RayAlone(1, size, 1, sync=True)
    (holder,) = run.holders
    begun = time.process_time()
    for _ in range(calls):
        np.copy(ray.get(holder.get.remote()))
    return (time.process_time() - begun) / calls


def costs_of(measured: Measured, **others: float) -> Costs:
    """Return the costs of the parts that were measured alone."""
    call = measured["call"]
    return Costs(measured["frame_bytes"], measured["step"], call, measured["round_trip"], measured["store"], **others)


# -- the report -------------------------------------------------------------------------------------------------------


def saturation(costs: Costs) -> int:
    """Return the number of workers beyond which more of them give less than 1 % more frames."""
    best = rate(costs, 10**6)
    low, high = 1, 10**6
    while low < high:
        middle = (low + high) // 2
        low, high = (middle + 1, high) if rate(costs, middle) < 0.99 * best else (low, middle)
    return low


def rate(costs: Costs, workers: int) -> float:
    """Return the frames a second of ``workers`` workers, which never fall when a worker is added."""
    nodes_more = range(workers, 0, -max(1, workers // 50))
    return max(min(limits(costs, each).values()) for each in nodes_more)


def plot(measured: Measured, costs: Costs, file: Path) -> None:
    """Draw the measured points, the model of this machine, and the levers."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.2))
    for way, each, color in (("messages", costs, "C0"), ("memory", in_memory(costs), "C1")):
        points = {int(n): value for n, value in measured[way].items()}  # type: ignore[literal-required]
        left.plot(
            list(points), [on_one_machine(each, n, measured["cores"]) for n in points], color, label=f"{way}, model"
        )
        left.plot(list(points), list(points.values()), "o", color=color, label=f"{way}, measured")
    left.set_xticks(ACTORS)
    left.set_ylim(bottom=0)
    left.set_title(f"one machine, {measured['cores']} cores")
    workers = np.unique(np.logspace(0, 4.5, 120).astype(int))
    for name, each in levers(costs).items():
        right.loglog(workers, [rate(each, int(n)) for n in workers], label=name)
    for n in (100, 10_000):
        right.axvline(n, color="0.8", zorder=0)
    right.set_title(f"nodes of {costs.cores} cores, a network of {costs.network * 8e-9:.0f} Gbit/s")
    for axes in (left, right):
        axes.set_xlabel("workers")
        axes.set_ylabel("frames / s")
        axes.legend(fontsize=8, loc="upper left" if axes is right else "lower right")
    figure.tight_layout()
    figure.savefig(file, dpi=110)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--measure", action="store_true", help="measure this machine first")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--frame-bytes", type=int, default=28_224, help="of an observation; default: 84x84x4")
    parser.add_argument("--step-us", type=float, default=300.0, help="microseconds of a step")
    for name in ("cores", "workers_per_node", "network", "weights", "updates", "learner"):
        kind = type(getattr(Costs, name))
        parser.add_argument(f"--{name.replace('_', '-')}", type=kind, default=getattr(Costs, name))
    parser.add_argument("--plot", type=Path, metavar="FILE.png")
    args = parser.parse_args()
    if args.measure:
        measured = measure(args.frame_bytes, args.step_us * 1e-6, args.rounds)
        MEASURED.write_text(json.dumps(measured, indent=1) + "\n")
    if not MEASURED.exists():
        parser.error(f"there is no {MEASURED.name} yet: run this on an idle machine with --measure")
    measured: Measured = json.loads(MEASURED.read_text())
    names = ("cores", "workers_per_node", "network", "weights", "updates", "learner")
    costs = costs_of(measured, **{name: getattr(args, name) for name in names})

    for way, each in (("messages", costs), ("memory", in_memory(costs))):
        rows = []
        for n, value in measured[way].items():  # type: ignore[literal-required]
            model = on_one_machine(each, int(n), measured["cores"])
            rows.append([n, f"{value:,.0f}", f"{model:,.0f}", f"{model / value:.2f}"])
        columns = ["actors", "measured", "model", "model / measured"]
        show(f"frames per second on this machine, batches in {way}", columns, rows)

    rows = []
    for name, each in levers(costs).items():
        cells = []
        for workers in (100, 10_000):
            parts = limits(each, workers)
            cells += [f"{rate(each, workers):,.0f}", min(parts, key=parts.__getitem__)]
        rows.append([name, *cells, f"{saturation(each):,}"])
    columns = ["", "100 workers", "limited by", "10,000 workers", "limited by", "saturates at"]
    show("frames per second on many machines", columns, rows)
    if args.plot:
        plot(measured, costs, args.plot)


if __name__ == "__main__":
    main()
