"""Groups of agents: the argument ``group_map`` of environments with several agents, and rows of their data.

``MarlGroupMapType`` is importable from ``steppe`` and ``steppe.envs`` too.
"""

from __future__ import annotations

from steppe_multi_agent.agent_groups import (
    GroupMap,
    MarlGroupMapType,
    check_marl_grouping,
    group_agents,
    group_agents_by_name,
)
from steppe_multi_agent.agent_rows import AgentRows

__all__ = ["AgentRows", "GroupMap", "MarlGroupMapType", "check_marl_grouping", "group_agents", "group_agents_by_name"]
