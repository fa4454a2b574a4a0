"""Groups of agents, whose data is stacked under one key."""

from __future__ import annotations

import re
from collections.abc import Iterable
from enum import Enum
from typing import Union

from steppe.errors import SpecError

__all__ = ["GroupMap", "MarlGroupMapType", "check_marl_grouping", "group_agents", "group_agents_by_name"]

#: The argument ``group_map`` of environments with several agents; None groups agents by their names in the library.
GroupMap = Union["MarlGroupMapType", "dict[str, list[str]]", None]

_NUMBERED = re.compile(r"(.+)[_ ]\d+")


class MarlGroupMapType(Enum):
    """Ready-made ways of grouping agents; ``get_group_map`` turns one into ``{group: [agents]}``.

    >>> from steppe import MarlGroupMapType
    >>> MarlGroupMapType.ALL_IN_ONE_GROUP.get_group_map(["wolf", "sheep"])
    {'agents': ['wolf', 'sheep']}
    >>> MarlGroupMapType.ONE_GROUP_PER_AGENT.get_group_map(["wolf", "sheep"])
    {'wolf': ['wolf'], 'sheep': ['sheep']}
    """

    ALL_IN_ONE_GROUP = "all_in_one_group"
    ONE_GROUP_PER_AGENT = "one_group_per_agent"

    def get_group_map(self, agent_names: list[str]) -> dict[str, list[str]]:
        """Return ``{group name: [agent names]}``; one group of all is called ``"agents"``.

        Args:
            agent_names: names of all agents, in their order.

        Raises:
            SpecError: the list is empty, or two agents have the same name.
        """
        if not agent_names or len(set(agent_names)) != len(agent_names):
            raise SpecError(f"Agents need names that differ, at least one, found {agent_names}.")
        if self is MarlGroupMapType.ALL_IN_ONE_GROUP:
            return {"agents": list(agent_names)}
        return {name: [name] for name in agent_names}


def group_agents_by_name(agent_names: Iterable[str]) -> dict[str, list[str]]:
    """Group agents by their names without the number: ``"<name>_<number>"`` or ``"<name> <number>"``.

    >>> from steppe_multi_agent import group_agents_by_name
    >>> group_agents_by_name(["wolf_0", "sheep_0", "sheep_1"])
    {'wolf': ['wolf_0'], 'sheep': ['sheep_0', 'sheep_1']}
    >>> group_agents_by_name(["agent_0", "agent_1"])
    {'agents': ['agent_0', 'agent_1']}

    Args:
        agent_names: names of all agents, in their order.

    Returns:
        ``{name: [agents]}`` in the order of the first agent of each group. An agent without a number has the group of
        its own name. If the only group is ``"agent"``, it is called ``"agents"``.
    """
    names = list(agent_names)
    groups: dict[str, list[str]] = {}
    for name in names:
        match = _NUMBERED.fullmatch(name)
        groups.setdefault(match[1] if match else name, []).append(name)
    return {"agents": names} if list(groups) == ["agent"] else groups


def group_agents(group_map: GroupMap, agent_names: Iterable[str]) -> dict[str, list[str]]:
    """Return the groups for a user's ``group_map``, checked.

    >>> from steppe_multi_agent import group_agents
    >>> group_agents(None, ["wolf_0", "sheep_0", "sheep_1"])
    {'wolf': ['wolf_0'], 'sheep': ['sheep_0', 'sheep_1']}
    >>> group_agents({"animals": ["wolf_0", "sheep_0"]}, ["wolf_0", "sheep_0"])
    {'animals': ['wolf_0', 'sheep_0']}

    Args:
        group_map: ``{group: [agents]}``, a :class:`MarlGroupMapType`, or None for :func:`group_agents_by_name`.
        agent_names: names of all agents, in their order.

    Raises:
        SpecError: it does not fit the agents; see :func:`check_marl_grouping`.
    """
    names = list(agent_names)
    if group_map is None:
        return group_agents_by_name(names)
    if isinstance(group_map, MarlGroupMapType):
        return group_map.get_group_map(names)
    check_marl_grouping(group_map, names)
    return {group: list(agents) for group, agents in group_map.items()}


def check_marl_grouping(group_map: dict[str, list[str]], agent_names: list[str]) -> None:
    """Check that every agent is in exactly one group, and every group has an agent.

    >>> from steppe_multi_agent import check_marl_grouping
    >>> check_marl_grouping({"herd": ["sheep_0", "sheep_1"]}, ["sheep_0", "sheep_1"])
    >>> check_marl_grouping({"herd": ["sheep_0"]}, ["sheep_0", "sheep_1"])
    Traceback (most recent call last):
        ...
    steppe.errors.SpecError: group_map does not fit the agents ['sheep_0', 'sheep_1']: agents without a group: ...

    Args:
        group_map: ``{group name: [agent names]}``.
        agent_names: names of all agents.

    Raises:
        SpecError: naming the agents that are missing, unknown or in two groups, and empty groups.
    """
    problems = []
    if not group_map:
        problems.append("there are no groups")
    empty = sorted(name for name, agents in group_map.items() if not agents)
    if empty:
        problems.append(f"groups without agents: {empty}")
    placed: dict[str, str] = {}
    for group, agents in group_map.items():
        for agent in agents:
            if agent not in agent_names:
                problems.append(f"group {group!r} names the unknown agent {agent!r}")
            elif agent in placed:
                problems.append(f"agent {agent!r} is in the groups {placed[agent]!r} and {group!r}")
            placed[agent] = group
    missing = sorted(set(agent_names) - set(placed))
    if missing:
        problems.append(f"agents without a group: {missing}")
    if problems:
        raise SpecError(f"group_map does not fit the agents {agent_names}: {'; '.join(problems)}.")
