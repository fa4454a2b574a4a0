"""``steppe check``: does an environment keep its word, alone and in batches?"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

from .output import UsageError, one_line

_STEPS = 64
_SLOW = "steps make TensorDicts, without the fast path:"


def add(commands: Any) -> None:
    parser = commands.add_parser("check", help="check one environment, alone and in batches")
    parser.add_argument("id", metavar="ID", help="such as gym:Pendulum-v1")
    parser.add_argument("--device", default="cpu", help="where its data should be (default: cpu)")
    parser.add_argument("--workers", type=int, default=2, metavar="N", help="environments in the batch (default: 2)")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    if args.workers < 1:
        raise UsageError(f"--workers takes a positive integer, got {args.workers}")
    from ..imports import import_tensordict
    from ..registry import env_factory

    factory = env_factory(args.id)  # a wrong id is said before torch is loaded
    import_tensordict()
    import torch

    try:
        torch.empty(0, device=args.device)
    except (RuntimeError, AssertionError) as error:
        raise UsageError(f"--device {args.device!r} cannot be used: {one_line(error)}") from None
    env = factory()
    try:
        env = env.to(args.device)
        alone = [
            ("reset and step fit the specs", lambda: _specs(env)),
            ("the same seed gives the same data", lambda: _seeds(env)),
            ("rollouts go on over episode ends", lambda: _rollout(env)),
        ]
        passed = [_report(name, check) for name, check in alone]
        _say_which_way(env)
    finally:
        env.close()
    batch = f"SerialEnv({args.workers}) and ParallelEnv({args.workers}) give equal data"
    passed.append(_report(batch, lambda: _batches(factory, args.workers)))
    return 0 if all(passed) else 1


def _say_which_way(env: Any) -> None:
    """Say whether steps write rows of arrays, the fast path; those that do not are slower and equally right."""
    problem = env.row_problem
    print(f"slower  {_SLOW} {problem}" if problem else "ok      steps write rows of arrays, the fast path", flush=True)


def _report(name: str, check: Callable[[], None]) -> bool:
    try:
        check()
    # Anything that an environment raises here is the answer to the question.
    except Exception as error:
        print(f"FAILED  {name}: {type(error).__name__}: {one_line(error)}", flush=True)
        return False
    print(f"ok      {name}", flush=True)
    return True


def _specs(env: Any) -> None:
    import steppe

    steppe.check_env_specs(env)


def _seeds(env: Any) -> None:
    actions = _actions(env)
    first, second = (_seeded(env, actions) for _ in range(2))
    try:
        _same(first, second, "first run", "second run")
    except ValueError as error:
        raise ValueError(
            f"{error}: random numbers come from elsewhere than the generator that set_seed seeds, or a reset without a "
            "seed makes a new one"
        ) from None


def _rollout(env: Any) -> None:
    data = env.rollout(_STEPS, actions=_actions(env), break_when_any_done=False)
    if data.shape[-1] != _STEPS:
        raise ValueError(f"asked for {_STEPS} steps, got {data.shape[-1]}")


def _batches(factory: Any, workers: int) -> None:
    import steppe

    def data_of(kind: Any) -> Any:
        env = kind(workers, factory)
        try:
            return _seeded(env, _actions(env))
        finally:
            env.close()

    _same(data_of(steppe.SerialEnv), data_of(steppe.ParallelEnv), "SerialEnv", "ParallelEnv")


def _actions(env: Any) -> list[Any]:
    import torch

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return [env.rand_action(env.reset()).select(*env.action_keys) for _ in range(_STEPS)]


def _seeded(env: Any, actions: list[Any]) -> Any:
    env.set_seed(0)
    return env.rollout(_STEPS, actions=actions, break_when_any_done=False)


def _same(first: Any, second: Any, first_name: str, second_name: str) -> None:
    mine, theirs = (set(data.keys(True, True)) for data in (first, second))
    if mine != theirs:
        raise ValueError(f"only one of {first_name} and {second_name} has {sorted(map(str, mine ^ theirs))}")
    for key in sorted(mine, key=str):
        one, other = first.get(key), second.get(key)
        if not _equal(one, other):
            raise ValueError(f"{key!r} differs between {first_name} and {second_name}")


def _equal(one: Any, other: Any) -> bool:
    import torch

    if not isinstance(one, torch.Tensor) or not isinstance(other, torch.Tensor):
        return bool(one == other)
    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    return bool(torch.equal(one.nan_to_num(), other.nan_to_num()) and torch.equal(one.isnan(), other.isnan()))
