"""Compare Brax in steppe with a loop over the compiled functions of Brax.

    python benchmarks/bench_jax.py [--names fast ant] [--n 1024] [--rounds 15]

Both take the same actions and wait for each step. One returns arrays of JAX, the other torch tensors in a TensorDict.
Contestants take turns in short slices; figures are medians, and the ratio is that of the same turn.
"""

from __future__ import annotations

import argparse
import statistics
import time
import warnings
from collections.abc import Callable

import jax
import torch
from brax import envs
from common import Contest, show

from steppe import make_env

warnings.filterwarnings("ignore")

RAW, OURS = "compiled functions of Brax", "steppe, steps on TensorDicts"


def slices(step: Callable[[], None], seconds: float = 0.1) -> Callable[[], float]:
    """Return a slice of about ``seconds``, which returns microseconds per step."""
    for _ in range(3):
        step()
    start = time.perf_counter()
    step()
    times = max(2, int(seconds / (time.perf_counter() - start)))

    def run() -> float:
        begin = time.perf_counter()
        for _ in range(times):
            step()
        return 1e6 * (time.perf_counter() - begin) / times

    return run


def raw_step(name: str, n: int) -> Callable[[], None]:
    env = envs.create(name, episode_length=1000, auto_reset=False, batch_size=n)
    step, action = jax.jit(env.step), jax.numpy.zeros((n, env.action_size))
    state = jax.jit(env.reset)(jax.random.PRNGKey(0))

    def run() -> None:
        nonlocal state
        state = jax.block_until_ready(step(state, action))

    return run


def our_step(name: str, n: int) -> Callable[[], None]:
    env = make_env(f"brax:{name}", batch_size=n)
    env.set_seed(0)
    td, action = env.reset(), torch.zeros(env.action_spec.shape)

    def run() -> None:
        nonlocal td
        td = env.step_mdp(env.step(td.set("action", action)))

    return run


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--names", nargs="+", default=["fast", "ant"])
    parser.add_argument("--n", type=int, default=1024, help="environments in a batch")
    parser.add_argument("--rounds", type=int, default=15)
    given = parser.parse_args()
    rows = []
    for name in given.names:
        contest = Contest(name, "us")
        contest.add(RAW, slices(raw_step(name, given.n)))
        contest.add(OURS, slices(our_step(name, given.n)))
        medians = contest.run(given.rounds)
        paired = zip(contest.figures[RAW], contest.figures[OURS], strict=True)
        ratio = statistics.median(raw / ours for raw, ours in paired)
        rows.append([name, f"{medians[RAW]:.0f}", f"{medians[OURS]:.0f}", f"{ratio:.2f}"])
    show(f"Brax, {given.n} environments, us a step", ["Environment", RAW, OURS, "Speed, of Brax"], rows)


if __name__ == "__main__":
    main()
