"""Two ways in which agents of the library act: all at once (parallel), or one after the other (AEC)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

__all__ = ["AllAtOnce", "OneByOne", "Outcome"]


class Outcome(NamedTuple):
    """What the library says after a reset or a step: a dict by agent of each.

    Attributes:
        observations: of agents that are alive.
        infos: likewise.
        acting: who acts next.
        rewards: of the step.
        terminated: of agents that were alive before the step.
        truncated: likewise.
    """

    observations: dict[str, Any]
    infos: dict[str, Any]
    acting: list[str]
    rewards: dict[str, Any]
    terminated: dict[str, Any]
    truncated: dict[str, Any]


class AllAtOnce:
    """A ``ParallelEnv`` of PettingZoo.

    Args:
        env: the environment.
    """

    def __init__(self, env: Any) -> None:
        self.env = env

    def reset(self, seed: int | None, options: Any) -> Outcome:
        observations, infos = self.env.reset(seed=seed, options=options)
        return Outcome(observations, infos, list(self.env.agents), {}, {}, {})

    def step(self, action_of: Callable[[str], Any]) -> Outcome:
        actions = {agent: action_of(agent) for agent in self.env.agents}
        observations, rewards, terminated, truncated, infos = self.env.step(actions)
        return Outcome(observations, infos, list(self.env.agents), rewards, terminated, truncated)


class OneByOne:
    """An ``AECEnv`` of PettingZoo: one step is one action of the agent whose turn it is.

    An agent that has ended gets the turn once more in the library, to be taken out; this is done at once.

    Args:
        env: the environment.
    """

    def __init__(self, env: Any) -> None:
        self.env = env

    def reset(self, seed: int | None, options: Any) -> Outcome:
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

    def _outcome(self, rewards: Any, terminated: Any, truncated: Any, infos: Any) -> Outcome:
        env = self.env
        ended = {agent for agent in terminated if terminated[agent] or truncated[agent]}
        over = bool(terminated) and len(ended) == len(terminated)
        # The last observation of who has just ended is part of the episode, as long as the library still gives it.
        observations = {agent: env.observe(agent) for agent in env.agents}
        acting = [] if over or not env.agents else [env.agent_selection]
        return Outcome(observations, infos, acting, rewards, terminated, truncated)
