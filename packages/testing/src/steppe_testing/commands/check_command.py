"""``steppe check``: test one environment, alone and in batches."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from steppe.cli import UsageError, one_line, positive
from steppe.errors import PluginNotFound, SteppeError
from steppe_testing.author_hints import action_hint

if TYPE_CHECKING:
    from tensordict import TensorDictBase

    from steppe import EnvBase
    from steppe.registry import EnvFactory

_STEPS = 64

help = "check one environment, alone and in batches"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("id", metavar="ID", help="such as gym:Pendulum-v1")
    parser.add_argument("--device", default="cpu", help="where its data should be (default: cpu)")
    parser.add_argument("--num-envs", type=positive, default=2, metavar="K", help="size of the batch (default: 2)")


def run(args: argparse.Namespace) -> int:
    from steppe.imports import import_tensordict
    from steppe.registry import env_factory

    try:
        factory = env_factory(args.id)  # before torch is imported, so that a wrong id is reported quickly
    except PluginNotFound as error:
        raise UsageError(one_line(error)) from None
    import_tensordict()
    import torch

    import steppe

    try:
        torch.empty(0, device=args.device)
    except (RuntimeError, AssertionError) as error:
        raise UsageError(f"--device {args.device!r} cannot be used: {one_line(error)}") from None
    env: EnvBase = factory()
    try:
        env = env.to(args.device)
        passed = [
            _report("reset and step fit the specs", partial(steppe.check_env_specs, env), env),
            _report("the same seed gives the same data", partial(_check_seeds, env)),
            _report("rollouts go on over episode ends", partial(_check_rollout, env), env),
        ]
        reason = env.no_row_writer_reason
        slow = f"slower  steps make TensorDicts, without the fast path: {reason}"
        print(slow if reason else "ok      steps write rows of arrays, the fast path", flush=True)
    finally:
        env.close()
    batch = f"SerialEnv({args.num_envs}) and ParallelEnv({args.num_envs}) give equal data"
    passed.append(_report(batch, partial(_check_batches, factory, args.num_envs)))
    return 0 if all(passed) else 1


def _report(name: str, check: Callable[[], object], env: EnvBase | None = None) -> bool:
    try:
        check()
    # Any exception of the environment is a failed check.
    except Exception as error:
        hint = "" if env is None or isinstance(error, SteppeError) else f" {action_hint(env)}"
        print(f"FAILED  {name}: {type(error).__name__}: {one_line(error)}{hint}", flush=True)
        return False
    print(f"ok      {name}", flush=True)
    return True


def _check_seeds(env: EnvBase) -> None:
    actions = _draw_actions(env)
    first, second = (_seeded_rollout(env, actions) for _ in range(2))
    try:
        _compare(first, second, "first run", "second run")
    except ValueError as error:
        raise ValueError(
            f"{error}: random numbers do not come from the generator that set_seed seeds, or a reset without a seed "
            "makes a new generator"
        ) from None


def _check_rollout(env: EnvBase) -> None:
    steps = env.rollout(_STEPS, break_when_any_done=False).shape[-1]
    if steps != _STEPS:
        raise SteppeError(f"asked for {_STEPS} steps, got {steps}")


def _check_batches(factory: EnvFactory, workers: int) -> None:
    import steppe

    serial, parallel = steppe.SerialEnv(workers, factory), steppe.ParallelEnv(workers, factory)
    try:
        actions = _draw_actions(serial)
        serial_data, parallel_data = (_seeded_rollout(batch, actions) for batch in (serial, parallel))
    finally:
        serial.close()
        parallel.close()
    _compare(serial_data, parallel_data, "SerialEnv", "ParallelEnv")


def _draw_actions(env: EnvBase) -> list[TensorDictBase]:
    """Return the random actions of a seeded rollout, which the action masks of its states allow."""
    import torch

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        env.set_seed(0)
        data = env.rollout(_STEPS, break_when_any_done=False)
    return [step.select(*env.action_keys) for step in data.unbind(-1)]


def _seeded_rollout(env: EnvBase, actions: list[TensorDictBase]) -> TensorDictBase:
    env.set_seed(0)
    data: TensorDictBase = env.rollout(_STEPS, actions=actions, break_when_any_done=False)
    return data


def _compare(first: TensorDictBase, second: TensorDictBase, first_name: str, second_name: str) -> None:
    """Raise ValueError if two rollouts differ, with the first step and entry that differ."""
    for step, (left, right) in enumerate(zip(first.unbind(-1), second.unbind(-1), strict=True)):
        keys, other_keys = (set(data.keys(True, True)) for data in (left, right))
        where = f"first at step {step} (of 0 to {_STEPS - 1})"
        if keys != other_keys:
            names = sorted(map(str, keys ^ other_keys))
            raise ValueError(f"only one of {first_name} and {second_name} has {names}, {where}")
        for key in sorted(keys, key=lambda key: (isinstance(key, tuple), str(key))):  # root first, then "next"
            if not _equal(left.get(key), right.get(key)):
                raise ValueError(f"{key!r} differs between {first_name} and {second_name}, {where}")


def _equal(left: object, right: object) -> bool:
    import torch

    if not isinstance(left, torch.Tensor) or not isinstance(right, torch.Tensor):
        return bool(left == right)
    if left.shape != right.shape or left.dtype != right.dtype:
        return False
    return bool(torch.equal(left.nan_to_num(), right.nan_to_num()) and torch.equal(left.isnan(), right.isnan()))
