"""Adapters of PettingZoo's two APIs, ParallelEnv and AECEnv."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

__all__ = ["AECAdapter", "Outcome", "ParallelAdapter"]


class Outcome(NamedTuple):
    """The values of a reset or a step, by agent.

    Attributes:
        observations: observations of the agents that are alive.
        infos: infos of the agents that are alive.
        acting: the agents that act next.
        rewards: rewards of the step.
        terminated: for each agent that was alive before the step, whether it terminated.
        truncated: for each agent that was alive before the step, whether it was truncated.
    """

    observations: dict[str, Any]
    infos: dict[str, Any]
    acting: list[str]
    rewards: dict[str, Any]
    terminated: dict[str, Any]
    truncated: dict[str, Any]


class ParallelAdapter:
    """Adapter of a ``ParallelEnv``: all agents that are alive act in each step.

    Args:
        env: the environment.
    """

    def __init__(self, env: Any) -> None:
        self.env = env

    def reset(self, seed: int | None, options: object) -> Outcome:
        observations, infos = self.env.reset(seed=seed, options=options)
        return Outcome(observations, infos, list(self.env.agents), {}, {}, {})

    def step(self, action_of: Callable[[str], Any]) -> Outcome:
        actions = {agent: action_of(agent) for agent in self.env.agents}
        observations, rewards, terminated, truncated, infos = self.env.step(actions)
        return Outcome(observations, infos, list(self.env.agents), rewards, terminated, truncated)


class AECAdapter:
    """Adapter of an ``AECEnv``: one step is one action, of the agent whose turn it is.

    PettingZoo gives an agent that has ended one more turn, in which it is removed. This adapter takes that turn
    at once.

    Args:
        env: the environment.
    """

    def __init__(self, env: Any) -> None:
        self.env = env

    def reset(self, seed: int | None, options: object) -> Outcome:
        self.env.reset(seed=seed, options=options)
        return self._outcome({}, {}, {}, dict(self.env.infos))

    def step(self, action_of: Callable[[str], Any]) -> Outcome:
        env = self.env
        env.step(action_of(env.agent_selection))
        rewards, terminated, truncated = dict(env.rewards), dict(env.terminations), dict(env.truncations)
        infos = dict(env.infos)
        if not all(terminated[agent] or truncated[agent] for agent in terminated):
            while env.agents and (env.terminations[env.agent_selection] or env.truncations[env.agent_selection]):
                env.step(None)
        return self._outcome(rewards, terminated, truncated, infos)

    def _outcome(
        self, rewards: dict[str, Any], terminated: dict[str, Any], truncated: dict[str, Any], infos: dict[str, Any]
    ) -> Outcome:
        env = self.env
        ended = {agent for agent in terminated if terminated[agent] or truncated[agent]}
        episode_ended = bool(terminated) and len(ended) == len(terminated)
        # An agent that has just ended still has a last observation, as long as the library lists the agent.
        observations = {agent: env.observe(agent) for agent in env.agents}
        acting = [] if episode_ended or not env.agents else [env.agent_selection]
        return Outcome(observations, infos, acting, rewards, terminated, truncated)
