"""Compare steppe's batches with those of gymnasium, SB3 and EnvPool, each through an API of numpy arrays.

    python benchmarks/bench_vector.py [--sets cartpole halfcheetah image] [--n 8] [--rounds 15] [--quick] [--ppo]
                                      [--write FILE]

``steppe make_vec`` has gymnasium's vector API, ``steppe as_vec_env`` that of Stable-Baselines3. All contestants step
the same actions in turns, in short slices; figures are medians, and ratios are to gymnasium's AsyncVectorEnv(8) in the
same turns. ``--ppo`` measures the frames per second of SB3's PPO on 8 CartPoles instead, in slices of one rollout.
``--write`` adds the medians to a JSON file: those of docs/performance.md are in ``benchmarks/vector.json``.
"""

from __future__ import annotations

import argparse
import warnings
from functools import partial
from typing import Any

import gymnasium
from bench_batched import BASE, NAMES, Slices, enter_envpool, enter_sb3
from bench_envs import make_raw
from common import Contest, show, write_figures

warnings.filterwarnings("ignore")

SETS = ("cartpole", "halfcheetah", "image")


def enter(slices: Slices, kind: str, n: int) -> None:
    """Add all contestants of a set."""
    from steppe_gym import make_vec

    name = NAMES[kind]
    raw, space = partial(make_raw, name), make_raw(name).action_space
    slices.vector("gymnasium AsyncVectorEnv", gymnasium.vector.AsyncVectorEnv([raw] * n), n, space)
    slices.vector("gymnasium SyncVectorEnv", gymnasium.vector.SyncVectorEnv([raw] * n), n, space)
    slices.vector("steppe make_vec", make_vec(raw, n), n, space)
    slices.vector("steppe make_vec, caller_share", make_vec(raw, n, caller_share=True), n, space)
    slices.vector("steppe make_vec, num_processes=0", make_vec(raw, n, num_processes=0), n, space)
    try:
        from steppe_sb3 import as_vec_env
    except ImportError:
        pass
    else:
        settings: dict[str, Any] = {"autoreset_mode": "same_step"}
        slices.vector("steppe as_vec_env", as_vec_env(make_vec(raw, n, **settings)), n, space)
        shared = make_vec(raw, n, caller_share=True, **settings)
        slices.vector("steppe as_vec_env, caller_share", as_vec_env(shared), n, space)
    enter_sb3(slices, raw, n, space)
    enter_envpool(slices, name, n, space)


def ppo(n: int, rounds: int, quick: bool) -> dict[str, float]:
    """Print the frames per second of SB3's PPO, and return them."""
    import time

    from stable_baselines3 import PPO
    from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv

    from steppe_sb3 import make_vec_env

    raw, steps = partial(make_raw, "CartPole-v1"), 32 if quick else 256
    makers = {
        "SB3 SubprocVecEnv": lambda: SubprocVecEnv([raw] * n),
        "SB3 DummyVecEnv": lambda: DummyVecEnv([raw] * n),
        "steppe make_vec_env": lambda: make_vec_env(raw, n, monitor=False),
        "steppe make_vec_env, caller_share": lambda: make_vec_env(raw, n, monitor=False, caller_share=True),
        "steppe make_vec_env, num_processes=0": lambda: make_vec_env(raw, n, monitor=False, num_processes=0),
    }
    contest = Contest("SB3's PPO", "frames/s")
    for label, make in makers.items():
        model = PPO("MlpPolicy", make(), n_steps=steps, batch_size=n * steps, n_epochs=1, device="cpu", seed=0)
        model.learn(n * steps)

        def slice_(model: Any = model) -> float:
            start = time.perf_counter()
            model.learn(n * steps, reset_num_timesteps=False)
            return n * steps / (time.perf_counter() - start)

        contest.add(label, slice_)
    medians = contest.run(rounds)
    base = medians["SB3 SubprocVecEnv"]
    rows = [[label, f"{value:,.0f}", f"{value / base:.2f}x"] for label, value in medians.items()]
    show(f"SB3's PPO on {n} CartPoles, frames a second", ["contestant", "median", "ratio"], rows)
    return medians


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--sets", nargs="*", default=list(SETS), choices=SETS)
    parser.add_argument("--n", type=int, default=8)
    parser.add_argument("--quick", action="store_true", help="3 rounds of short slices: a smoke test")
    parser.add_argument("--ppo", action="store_true", help="SB3's PPO instead")
    parser.add_argument("--write", metavar="FILE", help="add the medians to a JSON file")
    args = parser.parse_args()

    import torch

    torch.set_num_threads(1)
    rounds = min(args.rounds, 3) if args.quick else args.rounds
    settings: dict[str, Any] = {"unit": "frames/s", "rounds": rounds}
    if args.ppo:
        medians = ppo(args.n, rounds, args.quick)
        if args.write:
            write_figures(args.write, "ppo", medians, libraries="stable-baselines3 gymnasium torch", **settings)
        return
    rows = []
    for kind in args.sets:
        slices = Slices(0.03 if args.quick else 0.2)
        try:
            enter(slices, kind, args.n)
            medians = Contest(kind, "frames/s", entries=slices.entries).run(rounds)
        finally:
            slices.close()
        if args.write:
            write_figures(args.write, kind, medians, libraries="gymnasium numpy", **settings)
        base = medians[BASE.replace("8", str(args.n))]
        rows += [[kind, label, f"{value:,.0f}", f"{value / base:.2f}x"] for label, value in medians.items()]
    show("frames a second, given actions", ["set", "contestant", "median", "ratio"], rows)


if __name__ == "__main__":
    main()
