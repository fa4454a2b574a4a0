"""The batchers of rlstructures: collectors with preset arguments of requests."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from steppe.collectors import Collector, MultiSyncDataCollector
from steppe.errors import SpecError
from steppe_agents.agent_infos import Infos
from steppe_agents.job import Job
from steppe_agents.trajectories import Trajectories

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["Batcher", "EpisodeBatcher", "MonoThreadEpisodeBatcher"]


class _Batching:
    """Base class with the methods of all batchers."""

    _collector: Collector

    @property
    def n_envs(self) -> int:
        """The number of environments of all workers."""
        n: int = self._collector.n_lanes
        return n

    def get(self, blocking: bool = True) -> Trajectories | None:
        """Return the result of the last ``execute``.

        Args:
            blocking: wait for the result; False returns None if the result is not complete.
        """
        result: Trajectories | None = self._collector.get(blocking=blocking)
        return result

    def update(self, info: Any) -> None:
        """Update all agents before their next request.

        Args:
            info: the argument of the agent's method ``update``, if it has one; otherwise its new weights, a state dict,
                a module or a TensorDict of parameters.
        """
        collector = self._collector
        if "update" in collector.backend.agent_declarations.methods:
            collector.call_policy("update", info)
            return
        collector.update_policy_weights_(info)

    def close(self) -> None:
        """Close the workers and environments. Calling it again does nothing."""
        self._collector.shutdown()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()


class MonoThreadEpisodeBatcher(_Batching):
    """Collect whole episodes in this process, one for each environment.

    >>> import torch
    >>> from steppe import CategoricalActor, MonoThreadEpisodeBatcher
    >>> from steppe_testing import CountingEnv
    >>> agent_args = {"module": torch.nn.Linear(1, 3)}
    >>> batcher = MonoThreadEpisodeBatcher(CategoricalActor, agent_args, CountingEnv, {"max_steps": 7})
    >>> _ = batcher.execute()
    >>> batcher.get().length
    tensor([7])
    >>> batcher.close()

    Args:
        create_agent: makes the agent: a policy, such as an :class:`~steppe.Agent`.
        agent_args: keyword arguments for ``create_agent``.
        create_env: makes the environment, or a batch of environments such as ``SerialEnv(4, ...)``.
        env_args: keyword arguments for ``create_env``.
        seed: seed of the environments.
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

    def execute(self, agent_info: Infos | None = None, env_info: Infos | None = None) -> Job | None:
        """Request one episode of each environment; ``get`` collects them.

        Args:
            agent_info, env_info: infos with a row for each episode. The number of episodes may differ from that of
                environments.
        """
        n_episodes = self.n_envs if agent_info is None and env_info is None else None
        job: Job | None = self._collector.execute(n_episodes, agent_info=agent_info, env_info=env_info)
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
                raise SpecError(f"{name}: {argument} must be a whole number >= 1, found {value!r}.")
        if isinstance(seeds, Sequence) and len(seeds) != n_threads:
            raise SpecError(
                f"{name}: seeds has {len(seeds)} numbers for n_threads={n_threads}. Pass one seed for each thread."
            )
        self.n_timesteps, self.n_slots, self.n_threads = n_timesteps, n_slots, n_threads
        self._collector = MultiSyncDataCollector(
            [partial(create_env, **(env_args or {}))] * n_threads,
            policy_factory=partial(create_agent, **(agent_args or {})),
            seeds=seeds,
            num_slots=n_slots,
            slot_len=n_timesteps,
        )


class EpisodeBatcher(_OverWorkers):
    """Collect any number of whole episodes in worker processes.

    >>> import torch
    >>> from steppe import CategoricalActor, EpisodeBatcher
    >>> from steppe_testing import CountingEnv
    >>> batcher = EpisodeBatcher(
    ...     create_agent=CategoricalActor,
    ...     agent_args={"module": torch.nn.Linear(1, 3)},
    ...     create_env=CountingEnv,
    ...     n_timesteps=10,
    ...     n_slots=8,
    ...     n_threads=2,
    ... )
    >>> _ = batcher.execute(n_episodes=4)
    >>> batcher.get().length
    tensor([5, 5, 5, 5])
    >>> batcher.close()

    Args:
        create_agent, agent_args, create_env, env_args: see :class:`MonoThreadEpisodeBatcher`; called in each worker.
        n_timesteps: number of steps in a slot of shared memory, through which workers return data. An episode may use
            several slots. To limit its length, use ``TransformedEnv(env, StepCounter(max_steps))``.
        n_slots: number of slots, at least the number of environments.
        n_threads: number of worker processes.
        seeds: a seed for each worker, or the seed from which the seeds of workers are derived.
    """

    def execute(
        self, n_episodes: int | None = None, agent_info: Infos | None = None, env_info: Infos | None = None
    ) -> Job | None:
        """Request episodes, and return at once.

        Args:
            n_episodes: the number of episodes.
            agent_info, env_info: infos with a row for each episode, TensorDicts or dicts of values.
        """
        job: Job | None = self._collector.execute(n_episodes, agent_info=agent_info, env_info=env_info)
        return job

    def reexecute(self) -> Job | None:
        """Repeat the last request, with new random numbers."""
        job: Job | None = self._collector.reexecute()
        return job


class Batcher(_OverWorkers):
    """Collect the next steps of environments whose episodes have not ended.

    The environments run in worker processes.

    >>> import torch
    >>> from steppe import Batcher, CategoricalActor
    >>> from steppe_testing import CountingEnv
    >>> batcher = Batcher(
    ...     create_agent=CategoricalActor,
    ...     agent_args={"module": torch.nn.Linear(1, 3)},
    ...     create_env=CountingEnv,
    ...     n_timesteps=3,
    ...     n_slots=4,
    ...     n_threads=1,
    ... )
    >>> batcher.reset()
    >>> _ = batcher.execute()
    >>> batcher.get().length, batcher.n_still_running
    (tensor([3]), 1)
    >>> batcher.close()

    Args:
        create_agent, agent_args, create_env, env_args, n_slots, n_threads, seeds: see :class:`EpisodeBatcher`.
        n_timesteps: number of steps of each ``execute``.
    """

    def reset(self, agent_info: Infos | None = None, env_info: Infos | None = None) -> None:
        """Begin an episode in each environment.

        Args:
            agent_info, env_info: infos with a row for each environment.
        """
        self._collector.reset(agent_info=agent_info, env_info=env_info)

    def execute(self, agent_info: Infos | None = None) -> Job | None:
        """Request the next steps, and return at once.

        If all episodes have ended, this method and ``get`` return None.

        Args:
            agent_info: the new info of the agents, with a row for each environment.
        """
        job: Job | None = self._collector.execute(n_steps=self.n_timesteps, agent_info=agent_info)
        return job

    @property
    def n_still_running(self) -> int:
        """The number of episodes that have not ended."""
        n: int = self._collector.n_live
        return n
