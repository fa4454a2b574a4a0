"""Measure how long PPO trains until CartPole is solved, compared to SB3's PPO.

    python benchmarks/bench_ppo.py [--seeds 0 1 2] [--frames 100000] [--until 450]

All contestants have the same settings: 8 environments, 32 steps per batch, 20 epochs, nets of 2x64. For each seed, they
train in turn, each in a separate process. After every 10 batches the greedy policy plays 10 episodes. The time of these
episodes, and of making the environments, does not count. SB3's rows need ``pip install stable-baselines3``.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

EXAMPLE = Path(__file__).parents[1] / "docs/examples/ppo.py"
CONTESTANTS = ("steppe", "SB3, DummyVecEnv", "SB3, SubprocVecEnv")
EVERY = 10


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", nargs="*", type=int, default=[0, 1, 2])
    parser.add_argument("--frames", type=int, default=100_000)
    parser.add_argument("--until", type=float, default=450.0, help="mean return of 10 episodes")
    parser.add_argument("--train", choices=CONTESTANTS, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.train:
        import torch

        torch.set_num_threads(1)
        print(json.dumps(solved(args.train, args.seeds[0], args.frames, args.until)))
        return

    from common import show

    found: dict[str, list[tuple[int, float, float] | None]] = {}
    for seed in args.seeds:
        for contestant in CONTESTANTS:
            if contestant == "steppe" or find_spec("stable_baselines3"):
                run = _in_a_process(contestant, seed, args)
                found.setdefault(contestant, []).append(run)
                told = "not reached" if run is None else f"{run[0]} frames, {run[1]:.1f} s"
                print(f"seed {seed}, {contestant}: {told}", flush=True)
    rows = [[contestant, *_figures(runs)] for contestant, runs in found.items()]
    columns = ["PPO", "solved", f"frames until {args.until:g}", "seconds until then", "frames a second", "each seed"]
    show(f"CartPole-v1, medians of {len(args.seeds)} seeds", columns, rows)


def _in_a_process(contestant: str, seed: int, args: argparse.Namespace) -> tuple[int, float, float] | None:
    command = [sys.executable, __file__, "--train", contestant, "--seeds", str(seed)]
    command += ["--frames", str(args.frames), "--until", str(args.until)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    found: tuple[int, float, float] | None = json.loads(done.stdout.splitlines()[-1])
    return found


def _figures(runs: list[tuple[int, float, float] | None]) -> list[str]:
    reached = [run for run in runs if run is not None]
    if not reached:
        return ["none", "", "", "", ""]
    frames, seconds, speed = (statistics.median(column) for column in zip(*reached, strict=True))
    each = ", ".join("not" if run is None else f"{run[1]:.1f} s" for run in runs)
    return [f"{len(reached)} of {len(runs)}", f"{frames:.0f}", f"{seconds:.1f}", f"{speed:.0f}", each]


def solved(contestant: str, seed: int, frames: int, until: float) -> tuple[int, float, float] | None:
    """Train until the greedy policy's mean return is high enough.

    Returns:
        Frames, seconds, and frames per second until then; None if the goal was not reached.
    """
    if contestant == "steppe":
        curve = _of_the_example(seed, frames)
    else:
        curve = _of_sb3(contestant.endswith("SubprocVecEnv"), seed, frames, until)
    for trained, seconds, found in curve:
        if found >= until:
            return trained, seconds, trained / seconds
    return None


def _of_the_example(seed: int, frames: int) -> Iterator[tuple[int, float, float]]:
    """Yield frames, training seconds and the mean return, after every 10 batches.

    The mean return is that of the greedy policy.
    """
    spec = spec_from_file_location("ppo", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    example = module_from_spec(spec)
    spec.loader.exec_module(example)
    yield from example.train(frames, seed, evaluate_every=EVERY)


def _of_sb3(processes: bool, seed: int, frames: int, until: float) -> Iterator[tuple[int, float, float]]:
    """Do the same with SB3, which trains until the goal is reached."""
    from stable_baselines3 import PPO
    from stable_baselines3.common.callbacks import BaseCallback
    from stable_baselines3.common.env_util import make_vec_env
    from stable_baselines3.common.evaluation import evaluate_policy
    from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv

    found: list[tuple[int, float, float]] = []
    judge = make_vec_env("CartPole-v1", n_envs=10, seed=seed + 1000)

    class Judge(BaseCallback):
        batches, left_out, begun = 0, 0.0, 0.0

        def _on_training_start(self) -> None:
            self.begun = time.perf_counter()

        def _on_rollout_start(self) -> None:
            # The weights are those after learning from the batch before.
            if self.batches and self.batches % EVERY == 0:
                start = time.perf_counter()
                told: Any = evaluate_policy(self.model, judge, n_eval_episodes=10, deterministic=True)
                found.append((self.num_timesteps, start - self.begun - self.left_out, float(told[0])))
                self.left_out += time.perf_counter() - start
            self.batches += 1

        def _on_step(self) -> bool:
            return not (found and found[-1][2] >= until)

    envs = make_vec_env("CartPole-v1", n_envs=8, seed=seed, vec_env_cls=SubprocVecEnv if processes else DummyVecEnv)
    model = PPO(
        "MlpPolicy",
        envs,
        n_steps=32,
        batch_size=256,
        n_epochs=20,
        gamma=0.98,
        gae_lambda=0.8,
        learning_rate=lambda left: 1e-3 * left,
        clip_range=lambda left: 0.2 * left,
        seed=seed,
        device="cpu",
    )
    model.learn(frames, callback=Judge())
    envs.close()
    judge.close()
    yield from found


if __name__ == "__main__":
    main()
