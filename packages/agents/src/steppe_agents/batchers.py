"""The batchers of rlstructures by name: each is requests with some arguments set."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from steppe.collectors import Collector, MultiSyncDataCollector
from steppe.errors import SpecError
from steppe_agents.job import Job
from steppe_agents.trajectories import Trajectories

__all__ = ["Batcher", "EpisodeBatcher", "MonoThreadEpisodeBatcher"]


class _Batching:
    """What all batchers offer."""

    _collector: Any

    @property
    def n_envs(self) -> int:
        """How many environments there are, over all workers."""
        lanes: int = self._collector.n_lanes
        return lanes

    def get(self, blocking: bool = True) -> Trajectories | None:
        """The result of the last ``execute``.

        Args:
            blocking: wait for it; otherwise None is returned where it is not complete.
        """
        return self._collector.get(blocking=blocking)  # type: ignore[no-any-return]

    def update(self, info: Any) -> None:
        """Tell all agents something, before their next request: what their own ``update`` takes, where they have one;
        otherwise new weights: a state dict, a module or a TensorDict of parameters.
        """
        collector = self._collector
        if collector.policy_has("update"):
            collector.call_policy("update", info)
            return
        collector.update_policy_weights_(info)

    def close(self) -> None:
        """End workers and environments. Calling it again does nothing."""
        self._collector.shutdown()

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *exc_info: Any) -> None:
        self.close()


class MonoThreadEpisodeBatcher(_Batching):
    """Whole episodes, one for each environment, collected in this process.

    Args:
        create_agent: makes the agent: a policy, such as an :class:`~steppe.Agent`.
        agent_args: keyword arguments for it.
        create_env: makes the environment, or a batch of them such as ``SerialEnv(4, ...)``.
        env_args: keyword arguments for it.
        seed: of environments.
    """

    def __init__(
        self,
        create_agent: Callable[..., Any],
        agent_args: dict[str, Any] | None,
        create_env: Callable[..., Any],
        env_args: dict[str, Any] | None = None,
        *,
        seed: int | None = None,
    ) -> None:
        self._collector = Collector(
            partial(create_env, **(env_args or {})),
            policy_factory=partial(create_agent, **(agent_args or {})),
            seed=seed,
        )

    def execute(self, agent_info: Any = None, env_info: Any = None) -> Job | None:
        """Ask for one episode of each environment, or for as many as the infos have rows; ``get`` collects them."""
        given = agent_info is not None or env_info is not None
        job: Job | None = self._collector.execute(
            None if given else self.n_envs, agent_info=agent_info, env_info=env_info
        )
        return job


class _OverWorkers(_Batching):
    def __init__(
        self,
        *,
        create_agent: Callable[..., Any],
        create_env: Callable[..., Any],
        agent_args: dict[str, Any] | None = None,
        env_args: dict[str, Any] | None = None,
        n_timesteps: int,
        n_slots: int,
        n_threads: int,
        seeds: int | Sequence[int] | None = None,
    ) -> None:
        name = type(self).__name__
        for argument, value in {"n_timesteps": n_timesteps, "n_slots": n_slots, "n_threads": n_threads}.items():
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise SpecError(f"{name}: {argument} is a whole number >= 1, found {value!r}.")
        if isinstance(seeds, Sequence) and len(seeds) != n_threads:
            raise SpecError(f"{name}: seeds lists {len(seeds)} numbers for n_threads={n_threads}.")
        self.n_timesteps, self.n_slots, self.n_threads = n_timesteps, n_slots, n_threads
        self._collector = MultiSyncDataCollector(
            [partial(create_env, **(env_args or {}))] * n_threads,
            policy_factory=partial(create_agent, **(agent_args or {})),
            seeds=seeds,
            num_slots=n_slots,
            slot_len=n_timesteps,
        )


class EpisodeBatcher(_OverWorkers):
    """Whole episodes, as many as are asked for, collected by worker processes.

    Args:
        create_agent, agent_args, create_env, env_args: as :class:`MonoThreadEpisodeBatcher` has them; called in each
            worker.
        n_timesteps: steps in a slot of shared memory, through which data comes back; longer episodes take several. An
            environment ends them: ``TransformedEnv(env, StepCounter(max_steps))``.
        n_slots: how many slots there are, at least as many as environments.
        n_threads: worker processes.
        seeds: one for each worker, or one from which theirs follow.
    """

    def execute(self, n_episodes: int | None = None, agent_info: Any = None, env_info: Any = None) -> Job | None:
        """Ask for episodes, and return at once.

        Args:
            n_episodes: any number of them.
            agent_info, env_info: a row for each, TensorDicts or dicts of values.
        """
        job: Job | None = self._collector.execute(n_episodes, agent_info=agent_info, env_info=env_info)
        return job

    def reexecute(self) -> Job | None:
        """Ask for the same again, with new random numbers."""
        job: Job | None = self._collector.reexecute()
        return job


class Batcher(_OverWorkers):
    """The next steps of environments that still run, collected by worker processes.

    Args:
        create_agent, agent_args, create_env, env_args, n_slots, n_threads, seeds: see :class:`EpisodeBatcher`.
        n_timesteps: steps of each ``execute``.
    """

    def reset(self, agent_info: Any = None, env_info: Any = None) -> None:
        """Begin an episode in every environment; infos have a row for each."""
        self._collector.reset_lanes(agent_info=agent_info, env_info=env_info)

    def execute(self, agent_info: Any = None) -> Job | None:
        """Ask for the next steps, and return at once; None, and None from ``get``, where all episodes have ended.

        Args:
            agent_info: what agents are told from now on, a row for each environment.
        """
        job: Job | None = self._collector.execute(n_steps=self.n_timesteps, agent_info=agent_info)
        return job

    @property
    def n_still_running(self) -> int:
        """How many episodes have not ended."""
        live: int = self._collector.n_live
        return live
