"""Batches hold for long: partial steps and resets at random, workers killed at random, more processes than cores.

``STEPPE_SOAK=full pytest -o faulthandler_timeout=7200 tests/core/batched/test_soak.py`` runs the full lengths, which
take the better part of an hour: 200,000 steps, and 100 batches with a killed worker for each of 20 seeds.
"""

from __future__ import annotations

import os
import random
import signal
import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch

from steppe import ParallelEnv
from steppe.errors import WorkerError
from steppe.systems import usable_cores
from steppe_testing import ArrayCountingEnv, CountingEnv, NestedCountingEnv, TextCountingEnv
from tests.limits import CHILD

FULL = os.environ.get("STEPPE_SOAK") == "full"
STEPS = 200_000 if FULL else 5_000
SEEDS = range(20) if FULL else range(1)
BATCHES = 100 if FULL else 6
PROCESSES = 2 * usable_cores()

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("nothing_left"), *([pytest.mark.timeout(7200)] if FULL else [])]


class Model:
    """The expected counts of each row, which counts its own steps and episodes."""

    def __init__(self, lengths: list[int]) -> None:
        self.lengths = torch.tensor(lengths)
        self.counts = torch.zeros_like(self.lengths)

    def step(self, rows: torch.Tensor) -> torch.Tensor:
        self.counts = self.counts + rows
        return self.counts >= self.lengths

    def reset(self, rows: torch.Tensor) -> None:
        self.counts = torch.where(rows, 0, self.counts)


def masked(rng: torch.Generator, n: int) -> torch.Tensor:
    rows = torch.rand(n, generator=rng) < 0.4
    rows[int(torch.randint(n, (), generator=rng))] = True
    return rows


@pytest.mark.parametrize(
    ("make", "share"),
    [(ArrayCountingEnv, False), (ArrayCountingEnv, True), (CountingEnv, False)],
    ids=["arrays", "a share of the caller", "tensordicts"],
)
def test_random_partial_steps_and_resets_match_a_model(make: Any, share: bool) -> None:
    steps = STEPS if make is ArrayCountingEnv else STEPS // 10
    rng = torch.Generator().manual_seed(0)
    lengths = [7, 3, 50, 11, 2, 1000]
    n = len(lengths)
    factories = [lambda most=most: make(max_steps=most) for most in lengths]
    with ParallelEnv(n, factories, num_processes=PROCESSES, caller_share=share) as env:
        model = Model(lengths)
        td = env.reset()
        action = env.rand_action(td)["action"]
        for _ in range(steps):
            td["action"] = action
            choice = float(torch.rand((), generator=rng))
            if choice < 0.6:
                td, root = env.step_and_maybe_reset(td)
                ended = model.step(torch.ones(n, dtype=torch.bool))
                assert td["next", "observation"].flatten().tolist() == model.counts.tolist()
                model.reset(ended)
            else:
                rows = masked(rng, n)
                td = env.step(td.set("_step", rows))
                ended = model.step(rows)
                assert td["next", "observation"].flatten()[rows].tolist() == model.counts[rows].tolist()
                root = env.step_mdp(td.exclude("_step"))
                again = masked(rng, n) | ended
                root = env.reset(root.set("_reset", again.unsqueeze(-1))).exclude("_reset")
                model.reset(again)
            assert td["next", "done"].flatten()[ended].all()
            assert root["observation"].flatten().tolist() == model.counts.tolist()
            td = root.exclude("next")


def forward(env: Any, use: int) -> None:
    """Use a batch until it fails."""
    if use == 0:
        td = env.reset()
        while True:
            _, td = env.step_and_maybe_reset(env.rand_action(td))
    while True:
        if use == 1:
            env.rollout(7)
        elif use == 2:
            env.reset()
        elif use == 3:
            env.set_seed(0)
        else:
            list(env.is_closed_of_row)


class Asked(ArrayCountingEnv):
    """Has an attribute to ask for."""

    @property
    def is_closed_of_row(self) -> bool:
        return bool(self.is_closed)


@pytest.mark.parametrize("seed", SEEDS)
def test_workers_that_are_killed_at_random_moments_are_missed(seed: int) -> None:
    rng = random.Random(seed)
    kinds = [Asked, lambda: CountingEnv(noise=True), TextCountingEnv, NestedCountingEnv]
    for n in range(BATCHES):
        use = n % 5
        make = kinds[0] if use == 4 else rng.choice(kinds)
        env = ParallelEnv(5, make, num_processes=PROCESSES, caller_share=rng.random() < 0.3)
        env.start()
        victim = rng.choice(env.worker_pids)
        killer = threading.Timer(rng.random() * 0.05, os.kill, (victim, signal.SIGKILL))
        killer.start()

        with pytest.raises(WorkerError, match=rf"process {victim}\) ended unexpectedly"):
            forward(env, use)

        killer.join(CHILD)
        env.close()


def dying_at(row: int) -> Callable[[], Any]:
    """A factory whose process is killed when it makes its environment ``row``."""
    calls: list[int] = []

    def make() -> Any:
        calls.append(1)
        if len(calls) > row:
            os.kill(os.getpid(), signal.SIGKILL)
        return ArrayCountingEnv()

    return make


@pytest.mark.parametrize("seed", SEEDS)
def test_workers_that_are_killed_while_they_start_are_missed(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(max(2, BATCHES // 5)):
        env = ParallelEnv(12, dying_at(rng.randrange(5)), num_processes=2)

        with pytest.raises(WorkerError, match="ended unexpectedly"):
            env.reset()

        env.close()


def test_many_more_processes_than_cores_keep_up() -> None:
    n = 4 * usable_cores()
    with ParallelEnv(n, ArrayCountingEnv, num_processes=n) as env:
        td = env.reset()
        for step in range(STEPS // 20):
            td, root = env.step_and_maybe_reset(env.rand_action(td))
            assert td["next", "observation"].unique().tolist() == [step % 5 + 1]
            td = root
