"""Contestants: environments in one setting, stepped for a number of frames at a time."""

from __future__ import annotations

from typing import Any

import steppe
from steppe.envs import as_policy
from steppe.errors import ClosedError

from .results import Setting

__all__ = ["CollectorContestant", "Contestant", "PoolContestant", "make_contestant", "make_one"]

#: Frames of a batch of one environment of a collector.
_FRAMES = 16


def make_one(maker: Any) -> Any:
    """Make one environment of an id or a factory."""
    return steppe.make_env(maker) if isinstance(maker, str) else maker()


def make_contestant(setting: Setting, maker: Any, policy: Any, seed: int) -> Contestant:
    """Make the environments of a setting, and step them once.

    Args:
        setting: the setting.
        maker: an id, or a function that makes an environment.
        policy: chooses the actions; None for random ones.
        seed: the seed of environments and random actions.
    """
    n = setting.num_envs
    backend = "threading" if setting.threads else "multiprocessing"
    if setting.kind == "collector":
        inference = "server" if setting.served else "worker"
        collector = steppe.AsyncBatchedCollector(
            [maker] * n, policy, frames_per_batch=_FRAMES, seed=seed, backend=backend, inference=inference
        )
        return CollectorContestant(setting, collector)
    if setting.kind == "pool":
        pool = steppe.AsyncEnvPool([maker] * n, backend=backend)
        return PoolContestant(setting, pool, policy, seed)
    if setting.kind == "one":
        env = make_one(maker)
    elif setting.kind == "serial":
        env = steppe.SerialEnv(n, maker)
    else:
        env = steppe.ParallelEnv(n, maker, num_processes=setting.num_processes, caller_share=setting.caller_share)
    return Contestant(setting, env, policy, seed)


class Contestant:
    """An environment or a batch, stepped by rollouts that continue each other.

    Args:
        setting: how the environments are stepped.
        env: the environments; closed by :meth:`close`.
        policy: chooses the actions; None for random ones.
        seed: the seed of environments and random actions.
    """

    def __init__(self, setting: Setting, env: Any, policy: Any, seed: int) -> None:
        self.setting, self.env, self.policy = setting, env, policy
        self._root: Any = None
        try:
            env.set_seed(seed)
            self.run(2)
        except BaseException:
            self.close()
            raise

    def run(self, steps: int) -> int:
        """Take steps of the whole batch; return the number of frames."""
        env = self.env
        first = self._root is None
        data = env.rollout(
            steps,
            self.policy,
            auto_reset=first,
            tensordict=None if first else self._root,
            break_when_any_done=False,
        )
        self._root = env.step_mdp(data[..., -1])
        return int(data.numel())

    def close(self) -> None:
        """Close the environments."""
        try:
            self.env.close(raise_if_closed=False)
        except ClosedError:
            pass


class PoolContestant(Contestant):
    """A pool whose caller always works on those environments that have finished."""

    def run(self, steps: int) -> int:
        """Take about ``steps`` steps of each environment, and wait for all of them; return the number of frames."""
        env, n = self.env, self.setting.num_envs
        act = None if self.policy is None else as_policy(self.policy, env)
        if self._root is None:
            env.async_reset_send()
            self._root = [env.async_reset_recv(min_get=n)]
        ready, sent, received = list(self._root), 0, 0
        while received < steps * n:
            for td in ready:
                env.async_step_and_maybe_reset_send(env.rand_action_at(td, td["env_index"]) if act is None else act(td))
                sent += len(td)
            # With half of the environments, the caller and the others are busy at the same time.
            least = min(max(1, n // 2), sent - received)
            ready = [env.async_step_and_maybe_reset_recv(min_get=least)[1]]
            received += len(ready[0])
        while received < sent:
            ready.append(env.async_step_and_maybe_reset_recv(min_get=sent - received)[1])
            received += len(ready[-1])
        self._root = ready
        return received


class CollectorContestant(Contestant):
    """A collector whose environments go on by themselves.

    Args:
        setting: how the environments are stepped.
        collector: the collector; shut down by :meth:`close`.
    """

    def __init__(self, setting: Setting, collector: Any) -> None:
        self.setting, self.collector = setting, collector
        try:
            next(collector)
        except BaseException:
            self.close()
            raise

    def run(self, steps: int) -> int:
        """Take batches of about ``steps`` steps of each environment; return the number of frames."""
        received = 0
        while received < steps * self.setting.num_envs:
            received += next(self.collector).numel()
        return received

    def close(self) -> None:
        """End the environments."""
        self.collector.shutdown(raise_on_error=False)
