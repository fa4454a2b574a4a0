"""Requests, agents, batchers and fused actors for the collectors of steppe.

All names can also be imported from ``steppe``. ``Collector.execute`` starts a request for episodes or steps, in which
each row has an ``agent_info`` and an ``env_info``. ``Collector.get`` fetches the result.
"""

from __future__ import annotations

from steppe_agents.actors import CategoricalActor, NormalActor
from steppe_agents.agent import Agent, FunctionalAgent
from steppe_agents.agent_steps import AgentSteps
from steppe_agents.batchers import Batcher, EpisodeBatcher, MonoThreadEpisodeBatcher
from steppe_agents.episode_rollouts import rollouts
from steppe_agents.job import Job
from steppe_agents.policy_bank import PolicyBank
from steppe_agents.replaying import replay
from steppe_agents.requests import Requests
from steppe_agents.trajectories import Trajectories
from steppe_agents.whole_trajectories import WholeTrajectories

__all__ = [
    "Agent",
    "AgentSteps",
    "Batcher",
    "CategoricalActor",
    "EpisodeBatcher",
    "FunctionalAgent",
    "Job",
    "MonoThreadEpisodeBatcher",
    "NormalActor",
    "PolicyBank",
    "Requests",
    "Trajectories",
    "WholeTrajectories",
    "replay",
    "rollouts",
]
