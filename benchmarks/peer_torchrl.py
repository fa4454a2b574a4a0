"""TorchRL's side of a benchmark, run by an interpreter that has it: reads labels of slices, answers with figures."""

from __future__ import annotations

import json
import sys
import time
import warnings

warnings.filterwarnings("ignore")


def step_slices(name: str, steps: int) -> dict:
    import torch
    from torchrl.envs import Compose, DoubleToFloat, GymEnv, RewardSum, StepCounter, TransformedEnv

    torch.set_num_threads(1)
    env = GymEnv(name)
    transformed = TransformedEnv(GymEnv(name), Compose(RewardSum(), StepCounter(), DoubleToFloat()))
    given = [env.action_spec.rand() for _ in range(steps)]

    def loop() -> float:
        td = env.reset()
        start = time.perf_counter()
        for action in given:
            td["action"] = action
            _, td = env.step_and_maybe_reset(td)
        return (time.perf_counter() - start) / steps * 1e6

    def rollout(which: object) -> float:
        replay = iter(given)
        start = time.perf_counter()
        which.rollout(steps, lambda td: td.set("action", next(replay)), break_when_any_done=False)  # type: ignore
        return (time.perf_counter() - start) / steps * 1e6

    return {
        "torchrl loop": loop,
        "torchrl rollout": lambda: rollout(env),
        "torchrl rollout + 3 transforms": lambda: rollout(transformed),
    }


def batch_slices(name: str, n: int, batches: int) -> dict:
    import torch
    from torchrl.envs import GymEnv, ParallelEnv, SerialEnv

    torch.set_num_threads(1)
    made: dict = {}

    def slice_(cls: type) -> float:
        if cls not in made:
            made[cls] = cls(n, lambda: GymEnv(name))
            made[cls].reset()
        env = made[cls]
        td = env.reset()
        action = env.action_spec.rand()
        start = time.perf_counter()
        for _ in range(batches):
            td["action"] = action
            _, td = env.step_and_maybe_reset(td)
        return n * batches / (time.perf_counter() - start)

    return {"torchrl SerialEnv": lambda: slice_(SerialEnv), "torchrl ParallelEnv": lambda: slice_(ParallelEnv)}


def main() -> None:
    kind, name, *numbers = sys.argv[1:]
    slices = (step_slices if kind == "step" else batch_slices)(name, *map(int, numbers))
    for line in sys.stdin:
        print(json.dumps(slices[json.loads(line)]()), flush=True)


if __name__ == "__main__":
    main()
