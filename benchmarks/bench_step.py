"""Measure the overhead of a step over the raw library.

    python benchmarks/bench_step.py [--steps 2000] [--rounds 9] [--peer-python PYTHON]

The first table measures the step loop, rollouts, and rollouts with three transforms, on the same actions. The second
table measures what steppe adds to the ``_step`` of an environment that makes its own TensorDicts. The third table has
an environment that does nothing and observes a frame of 210x160x3 bytes. It measures what steppe adds to the library
and one copy of each frame, into reused memory, and into new memory that is kept, as the frames of a rollout are.

``--peer-python`` names an interpreter with TorchRL, whose figures are printed too. It runs in a separate process,
because the two libraries need different versions of tensordict; the rounds of both are interleaved.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

IDS = ("CartPole-v1", "Pendulum-v1", "HalfCheetah-v5", "dm:cheetah-run")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--ids", nargs="*", default=list(IDS))
    parser.add_argument("--tensordicts", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--frames", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--peer-python", default=None)
    args = parser.parse_args()

    import torch
    from common import Contest, show
    from peer import Peer

    torch.set_num_threads(1)
    rows = []
    for name in args.ids:
        contest = Contest(name, "us a step")
        for label, slice_ in contestants(name, args.steps).items():
            contest.add(label, slice_)
        known = args.peer_python and not name.startswith("dm:")  # the peer makes its environments with gymnasium
        peer = Peer(args.peer_python, name, min(args.steps, 500)) if known else None
        if peer is not None:
            for label in ("torchrl loop", "torchrl rollout", "torchrl rollout + 3 transforms"):
                contest.add(label, lambda label=label, peer=peer: peer.slice(label))
        medians = contest.run(args.rounds)
        if peer is not None:
            peer.close()
        raw = medians["raw"]
        for label, value in medians.items():
            rows.append([name, label, f"{value:.1f}", f"{value - raw:+.1f}", f"{value / raw:.2f}x"])
    show("us a step, n=1, given actions", ["environment", "API", "us", "over raw", "of raw"], rows)
    if args.tensordicts:
        tensordicts(args.rounds)
    if args.frames:
        frames(args.rounds)


def tensordicts(rounds: int, steps: int = 1000) -> None:
    """Print the table of the environment that makes its own TensorDicts."""
    from common import Contest, show

    contest = Contest("tensordicts", "us a step")
    for label, slice_ in contestants_with_tensordicts(steps).items():
        contest.add(label, slice_)
    medians = contest.run(rounds)
    own = medians["its own _step"]
    show(
        "an environment that makes its own tensordicts, n=1, given actions",
        ["API", "us", "over its own _step"],
        [[label, f"{value:.1f}", f"{value - own:+.1f}"] for label, value in medians.items()],
    )


def contestants_with_tensordicts(steps: int) -> dict[str, Any]:
    """Return a counting environment, alone and called by steppe."""
    from steppe_testing import CountingEnv

    env = CountingEnv(max_steps=200)
    actions = env.full_action_spec.rand((steps,))
    key = env.action_key
    given = list(actions[key].unbind(0))

    def timed(run: Any) -> Any:
        def slice_() -> float:
            root = env.reset()
            start = time.perf_counter()
            run(root)
            return (time.perf_counter() - start) / steps * 1e6

        return slice_

    def own(root: Any) -> None:
        for action in given:
            root[key] = action
            env._step(root)

    def step(root: Any) -> None:
        for action in given:
            root[key] = action
            env.step(root)

    def loop(root: Any) -> None:
        for action in given:
            root[key] = action
            _, root = env.step_and_maybe_reset(root)

    def rollout(root: Any) -> None:
        env.rollout(steps, actions=actions[key], break_when_any_done=False)

    return {
        "its own _step": timed(own),
        "steppe step": timed(step),
        "steppe step loop, with resets": timed(loop),
        "steppe rollout, with resets": timed(rollout),
    }


def frames(rounds: int, steps: int = 1000) -> None:
    """Print the table of the environment that observes frames."""
    from common import Contest, show

    contest = Contest("frames", "us a step")
    for label, slice_ in contestants_with_frames(steps).items():
        contest.add(label, slice_)
    medians = contest.run(rounds)
    near, new = medians["raw + copy, memory used again"], medians["raw + copy, new memory"]
    show(
        "a frame of 210x160x3 bytes at each step, n=1, given actions",
        ["API", "us", "over raw + copy", "over raw + copy into new memory"],
        [[label, f"{value:.1f}", f"{value - near:+.1f}", f"{value - new:+.1f}"] for label, value in medians.items()],
    )


def contestants_with_frames(steps: int) -> dict[str, Any]:
    """Return an environment that shows one frame, alone and called by steppe."""
    import gymnasium
    import numpy as np
    import torch

    from steppe_gym import GymWrapper

    class Frames(gymnasium.Env):
        observation_space = gymnasium.spaces.Box(0, 255, (210, 160, 3), np.uint8)
        action_space = gymnasium.spaces.Discrete(2)

        def __init__(self) -> None:
            self.frame = np.random.default_rng(0).integers(0, 256, (210, 160, 3), np.uint8)

        def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
            return self.frame, {}

        def step(self, action: Any) -> Any:
            return self.frame, 1.0, False, False, {}

    raw_env, env = Frames(), GymWrapper(Frames())
    memory = np.zeros((steps, 210, 160, 3), np.uint8)
    given = torch.tensor([1, 0]).expand(steps, 2).contiguous()

    def timed(run: Any) -> Any:
        def slice_() -> float:
            start = time.perf_counter()
            run()
            return (time.perf_counter() - start) / steps * 1e6

        return slice_

    def raw() -> None:
        for _ in range(steps):
            raw_env.step(0)

    def copied() -> None:
        for t in range(steps):
            memory[t] = raw_env.step(0)[0]

    def kept() -> list[Any]:
        return [raw_env.step(0)[0].copy() for _ in range(steps)]

    def loop() -> None:
        td = env.reset()
        for action in given.unbind(0):
            td["action"] = action
            _, td = env.step_and_maybe_reset(td)

    def rollout() -> None:
        env.rollout(steps, actions=given, break_when_any_done=False)

    return {
        "raw": timed(raw),
        "raw + copy, memory used again": timed(copied),
        "raw + copy, new memory": timed(kept),
        "steppe step loop": timed(loop),
        "steppe rollout": timed(rollout),
    }


def contestants(name: str, steps: int) -> dict[str, Any]:
    """Return the raw library and steppe, with the same actions."""
    import gymnasium

    from steppe import Compose, DoubleToFloat, RewardSum, StepCounter, TransformedEnv, make_env
    from steppe.specs import OneHot

    full_name = name if name.startswith("dm:") else f"gym:{name}"
    env = make_env(full_name)
    transformed = TransformedEnv(make_env(full_name), Compose(RewardSum(), StepCounter(), DoubleToFloat()))
    actions = env.full_action_spec.rand((steps,))[env.action_key]
    given = list(actions.unbind(0))
    discrete = isinstance(env.action_spec, OneHot)
    native = actions.argmax(-1).tolist() if discrete else [action.numpy() for action in given]
    raw_env: Any = make_env(full_name)._env if name.startswith("dm:") else gymnasium.make(name)

    def raw_dm() -> float:
        raw_env.reset()
        start = time.perf_counter()
        for action in native:
            if raw_env.step(action).last():
                raw_env.reset()
        return (time.perf_counter() - start) / steps * 1e6

    def raw() -> float:
        raw_env.reset(seed=0)
        start = time.perf_counter()
        for action in native:
            *_, terminated, truncated, _info = raw_env.step(action)
            if terminated or truncated:
                raw_env.reset()
        return (time.perf_counter() - start) / steps * 1e6

    def loop(which: Any) -> Any:
        acts = [action.to(which.action_spec.dtype) for action in given]  # a transform may cast doubles to floats

        def run() -> float:
            which.set_seed(0)
            td = which.reset()
            start = time.perf_counter()
            for action in acts:
                td["action"] = action
                _, td = which.step_and_maybe_reset(td)
            return (time.perf_counter() - start) / steps * 1e6

        return run

    def rollout(which: Any) -> Any:
        acts = [action.to(which.action_spec.dtype) for action in given]

        def run() -> float:
            which.set_seed(0)
            start = time.perf_counter()
            which.rollout(steps, actions=acts, break_when_any_done=False)
            return (time.perf_counter() - start) / steps * 1e6

        return run

    return {
        "raw": raw_dm if name.startswith("dm:") else raw,
        "steppe step loop": loop(env),
        "steppe rollout": rollout(env),
        "steppe loop + 3 transforms": loop(transformed),
        "steppe rollout + 3 transforms": rollout(transformed),
    }


if __name__ == "__main__":
    main()
