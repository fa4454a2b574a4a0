"""rollouts: whole episodes of a policy in an environment, in one call."""

from __future__ import annotations

from typing import Any

from steppe.collectors import Collector
from steppe.envs import EnvBase
from steppe_agents.agent_infos import Infos
from steppe_agents.trajectories import Trajectories

__all__ = ["rollouts"]


def rollouts(
    env: Any,
    policy: Any = None,
    *,
    n_episodes: int | None = None,
    agent_info: Infos | None = None,
    env_info: Infos | None = None,
    max_steps: int | None = None,
) -> Trajectories:
    """Run whole episodes in this process.

    Args:
        env: an environment, which stays open; or a function or id that makes one, which is closed.
        policy: as for :class:`~steppe.Collector`; None for random actions.
        n_episodes, agent_info, env_info: see :meth:`Collector.execute`.
        max_steps: truncate episodes after this many steps.

    Examples:
        >>> from steppe import SerialEnv
        >>> from steppe_agents import rollouts
        >>> rollouts(SerialEnv(2, "gym:Pendulum-v1"), n_episodes=3, max_steps=4).length.tolist()
        [4, 4, 4]
    """
    collector = Collector(env, policy, max_steps=max_steps)
    try:
        result: Trajectories = collector.execute(n_episodes, agent_info=agent_info, env_info=env_info).result()
        return result
    finally:
        collector.shutdown(close_env=not isinstance(env, EnvBase))
