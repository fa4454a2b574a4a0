"""The cost of one environment in this process."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import torch

from steppe.envs import as_policy

from .contestants import make_one
from .results import EnvCost

__all__ = ["measure_cost"]

_MOST_STEPS = 2000
_FEWEST_STEPS = 20
_RESETS = 20
_POLICY_CALLS = 20


def measure_cost(maker: Any, *, policy: Any, num_envs: int, seconds: float, seed: int) -> EnvCost:
    """Measure what one environment costs.

    Args:
        maker: an id, or a function that makes an environment.
        policy: a policy whose call is measured too, or None.
        num_envs: the number of environments in a call of the policy.
        seconds: how long the measurement takes; at least 20 steps are taken.
        seed: the seed of the environment.
    """
    env = make_one(maker)
    try:
        making = _seconds_of(lambda: make_one(maker).close(raise_if_closed=False))  # the first one imports a library
        env.set_seed(seed)
        resets = _repeat(env.reset, _RESETS, seconds / 5)
        steps, root = _single_steps(env, seconds / 3)
        return EnvCost(
            frame=_frame(env, seconds / 3),
            step=statistics.median(steps) / env.numel(),
            slow_step=statistics.quantiles(steps, n=20)[-1] / env.numel(),
            reset=statistics.median(resets) / env.numel(),
            making=making,
            policy=0.0 if policy is None else _policy_call(policy, env, root, num_envs),
            rows=env.numel(),
            is_batch=bool(env.batch_size),
        )
    finally:
        env.close(raise_if_closed=False)


def _single_steps(env: Any, seconds: float) -> tuple[list[float], Any]:
    """Return the seconds of single steps, and the last root."""
    times: list[float] = []
    root = env.reset()
    end = time.perf_counter() + seconds
    while len(times) < _MOST_STEPS and (time.perf_counter() < end or len(times) < _FEWEST_STEPS):
        root = env.rand_action(root)
        start = time.perf_counter()
        data = env.step(root)
        times.append(time.perf_counter() - start)
        root = env.maybe_reset(env.step_mdp(data))
    return times, root


def _frame(env: Any, seconds: float) -> float:
    """Return the median of seconds for one frame of rollouts, in which ended episodes are reset."""
    length, took = 16, _seconds_of_rollout(env, 16)
    while took < seconds / 20 and length < 2**14:
        length *= 2
        took = _seconds_of_rollout(env, length)
    again = _repeat(lambda: env.rollout(length, break_when_any_done=False), 9, seconds / 2)
    return statistics.median([took, *again]) / (length * int(env.numel()))


def _seconds_of_rollout(env: Any, length: int) -> float:
    return _seconds_of(lambda: env.rollout(length, break_when_any_done=False))


def _policy_call(policy: Any, env: Any, root: Any, num_envs: int) -> float:
    act = as_policy(policy, env)
    data = root.select(*env.observation_keys, *env.state_keys, *env.done_keys, strict=False)
    batch = data.expand(num_envs, *data.batch_size) if not data.batch_size else data
    with torch.no_grad():
        act(batch.clone())
        return statistics.median(_seconds_of(lambda: act(batch.clone())) for _ in range(_POLICY_CALLS))


def _repeat(call: Callable[[], object], most: int, seconds: float) -> list[float]:
    """Return the seconds of repeated calls, at least one."""
    times: list[float] = []
    end = time.perf_counter() + seconds
    while not times or (len(times) < most and time.perf_counter() < end):
        times.append(_seconds_of(call))
    return times


def _seconds_of(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start
