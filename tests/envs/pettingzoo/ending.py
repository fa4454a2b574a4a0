"""Environments written with PettingZoo whose agents end one after the other."""

from __future__ import annotations

import numpy as np
from gymnasium.spaces import Box, Dict, Discrete
from pettingzoo import ParallelEnv
from pettingzoo.utils.conversions import parallel_to_aec


class Leaving(ParallelEnv):
    """Agent ``i`` is out after ``i + 2`` steps; the last one is truncated, the others are terminated.

    Observations are ``[steps, what the agent did last]``, rewards ``steps * (i + 1)``.
    """

    metadata = {"name": "leaving_v0", "is_parallelizable": True, "render_modes": []}
    render_mode = None

    def __init__(self, n=3):
        self.possible_agents = [f"walker_{i}" for i in range(n)]
        self.agents = []

    def observation_space(self, agent):
        return Box(-10, 100, (2,), np.float32)

    def action_space(self, agent):
        return Discrete(4)

    def reset(self, seed=None, options=None):
        self.agents, self.steps = list(self.possible_agents), 0
        return {agent: np.zeros(2, np.float32) for agent in self.agents}, {
            agent: {"lives": 3, "name": "someone"} for agent in self.agents
        }

    def step(self, actions):
        self.steps += 1
        found = ({}, {}, {}, {}, {})
        for agent in self.agents:
            i = int(agent[-1])
            over, last = self.steps >= i + 2, agent == self.possible_agents[-1]
            values = (
                np.array([self.steps, actions[agent]], np.float32),
                float(self.steps * (i + 1)),
                over and not last,
                over and last,
                {"lives": 3 - self.steps},
            )
            for column, value in zip(found, values, strict=True):
                column[agent] = value
        self.agents = [agent for agent in self.agents if not (found[2][agent] or found[3][agent])]
        return found

    def state(self):
        return np.array([self.steps, len(self.agents)], np.float64)


def leaving_in_turns(n=3):
    return parallel_to_aec(Leaving(n))


class Choosy(Leaving):
    """Agent ``i`` observes ``i + 1`` numbers, has ``i + 2`` actions, and may take the last of them alone."""

    def observation_space(self, agent):
        i = int(agent[-1])
        return Dict({"observation": Box(0, 100, (i + 1,), np.float32), "action_mask": Box(0, 1, (i + 2,), np.int8)})

    def action_space(self, agent):
        return Discrete(int(agent[-1]) + 2)

    def _seen(self, agents):
        found = {}
        for agent in agents:
            i = int(agent[-1])
            mask = np.eye(i + 2, dtype=np.int8)[-1]
            found[agent] = {"observation": np.full(i + 1, self.steps, np.float32), "action_mask": mask}
        return found

    def reset(self, seed=None, options=None):
        _, infos = super().reset(seed, options)
        return self._seen(self.agents), {agent: {} for agent in infos}

    def step(self, actions):
        observations, *rest, infos = super().step(actions)
        return self._seen(observations), *rest, {agent: {} for agent in infos}
