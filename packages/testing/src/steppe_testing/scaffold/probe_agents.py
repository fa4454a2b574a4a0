"""Inspect an unknown simulator of several agents, which returns a value for each agent."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from steppe_testing.scaffold.probe_values import (
    ProbeError,
    action_of,
    leaves_of,
    one_line,
    reset_simulator,
    result_form,
    sample_action,
    seed_route,
    value_of,
)

_AGENTS = ("possible_agents", "agents", "agent_ids", "players")
_WIDTHS = ("bool", "uint8", "int", "uint", "float", "text", "object")  # dtypes hold values of those before them


def describe_agents(simulators: list[Any], names: list[str], answer: dict[str, Any]) -> None:
    """Reset and step the first simulator, and add to the answer what its environment needs.

    ``agents``: their names; ``layout``: ``"agent"`` if a reset returns a dict of agents, ``"entry"`` if it returns
    entries with a dict of agents each; ``shared``: the entries that all agents share; ``kinds``: a dict for each kind
    of agents, with its ``name``, its ``agents``, the entries (``observation``) and the ``action`` that they have in
    common, ``single``, and ``mask``: the key of the entry that says which actions are allowed, or None (those of the
    first kind are also in the answer); ``by_name``: whether agents called alike are of one kind; ``rewards``,
    ``terminated``, ``truncated``: whether a step returns these by agent. A note names simulators that differ from the
    first one.

    Raises:
        ProbeError: it has no list of agents, or an agent observes nothing.
    """
    _describe(simulators[0], answer)
    described = ("agents", "layout", "kinds", "shared")
    for name, simulator in zip(names[1:], simulators[1:], strict=True):
        other = {"constructor_seed": answer["constructor_seed"], "notes": []}
        try:
            _describe(simulator, other)
        except ProbeError as error:
            answer["notes"].append(f"The simulator {name!r} could not be inspected: {error}.")
            continue
        if any(other[key] != answer[key] for key in described):
            answer["notes"].append(
                f"The simulator {name!r} has other agents, entries or actions than {names[0]!r}, and env.py has only "
                f"those of {names[0]!r}: write the others."
            )


def _describe(simulator: Any, answer: dict[str, Any]) -> None:
    answer["seed"] = seed_route(simulator, answer)
    try:
        observed, answer["reset"] = reset_simulator(simulator, answer["seed"], 0)
    except Exception as error:
        raise ProbeError(f"reset() raises {one_line(error)}") from error
    agents = answer["agents"] = _agents(simulator)
    if not isinstance(observed, Mapping):
        raise ProbeError(f"reset() returned a {type(observed).__name__}, not a dict with values of agents")
    per_agent, shared = _split(observed, agents, answer)
    kinds = answer["kinds"] = _kinds(simulator, per_agent, answer)
    answer.update({key: kinds[0][key] for key in ("observation", "single", "action", "mask")})
    answer["shared"] = leaves_of(shared, None, answer["notes"])
    answer["shapes"] = {}
    answer.update(rewards=True, terminated=False, truncated=False)
    if all(kind["action"] is not None for kind in kinds):
        _try_step(simulator, per_agent, answer)
    else:
        answer["notes"].append("No action space was found: the action spec is a guess, and step() was not tried.")


def _agents(simulator: Any) -> list[str]:
    for name in _AGENTS:
        agents = value_of(getattr(simulator, name, None))
        if isinstance(agents, Mapping):
            agents = list(agents)
        listed = isinstance(agents, Sequence) and not isinstance(agents, str) and bool(agents)
        if listed and all(isinstance(agent, str) for agent in agents):
            return list(agents)
    raise ProbeError(f"it has no list of the names of its agents, called {', '.join(_AGENTS)}")


def _split(
    observed: Mapping[Any, Any], agents: list[str], answer: dict[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the values of each agent, and the entries that all share."""
    if all(agent in observed for agent in agents):
        answer["layout"] = "agent"
        shared = {key: value for key, value in observed.items() if key not in agents}
        return {agent: observed[agent] for agent in agents}, shared
    answer["layout"] = "entry"
    # Not each entry has a value of each agent: agents of other kinds observe other entries.
    own = [key for key, value in observed.items() if isinstance(value, Mapping) and value and set(value) <= set(agents)]
    if not own:
        raise ProbeError(f"reset() returned {sorted(map(str, observed))}, none of them with values of agents")
    shared = {key: value for key, value in observed.items() if key not in own}
    return {agent: {key: observed[key][agent] for key in own if agent in observed[key]} for agent in agents}, shared


def _kinds(simulator: Any, per_agent: Mapping[str, Any], answer: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the kinds of agents: those of one kind have the same entries and actions.

    Kinds are called after their first group: after the names of agents without the number, or after an agent if agents
    called alike differ.
    """
    kinds: dict[str, dict[str, Any]] = {}
    for agent, values in per_agent.items():
        leaves, action = leaves_of(values, None, answer["notes"]), _action(simulator, agent)
        if not leaves:
            raise ProbeError(f"reset() returned no entries of the agent {agent!r}: write _data by hand")
        entries = sorted((leaf["key"], leaf["shape"], _is_number(leaf)) for leaf in leaves)
        single = not isinstance(values, Mapping)
        kind = kinds.setdefault(
            repr((entries, single, action)),
            {
                "agents": [],
                "observation": leaves,
                "single": single,
                "action": action,
                "mask": next((leaf["key"] for leaf in leaves if _is_mask(leaf, action)), None),
            },
        )
        kind["agents"].append(agent)
        _widen(kind["observation"], leaves)
    kinds_of_groups: dict[str, set[str]] = {}
    for described, kind in kinds.items():
        for agent in kind["agents"]:
            kinds_of_groups.setdefault(group_of(agent), set()).add(described)
    different = [group for group, members in kinds_of_groups.items() if len(members) > 1]
    answer["by_name"] = not different
    for kind in kinds.values():
        first = kind["agents"][0]
        kind["name"] = first if different else group_of(first)
    if different:
        answer["notes"].append(
            f"Agents called {different[0]}_<number> have different entries or actions, so each agent is a group of its "
            "own. group_map groups those of one kind."
        )
    if len(kinds) > 1:
        names = ", ".join(kind["name"] for kind in kinds.values())
        answer["notes"].append(f"Agents of {len(kinds)} kinds have entries and actions of their own: {names}.")
    return list(kinds.values())


def group_of(agent: str) -> str:
    """Return the group of an agent by name, as ``group_agents`` of steppe-multi-agent does, which needs torch."""
    match = re.fullmatch(r"(.+)[_ ]\d+", agent)
    return match[1] if match else agent


def _is_number(leaf: Mapping[str, Any]) -> bool:
    return leaf["dtype"] not in ("text", "object")


def _widen(leaves: list[dict[str, Any]], others: list[dict[str, Any]]) -> None:
    """Give each entry a dtype that also holds the values of another agent, such as 0.5 where the first one has 0."""
    dtypes = {leaf["key"]: leaf["dtype"] for leaf in others}
    for leaf in leaves:
        leaf["dtype"] = max(leaf["dtype"], dtypes[leaf["key"]], key=_width)


def _width(dtype: str) -> int:
    return next(i for i, start in enumerate(_WIDTHS) if dtype.startswith(start))


def _action(simulator: Any, agent: str) -> dict[str, Any] | None:
    """Return the actions of one agent: by PettingZoo's names, or those of a simulator of one agent."""
    spaces = getattr(simulator, "action_spaces", None)
    space = getattr(simulator, "action_space", None)
    if isinstance(spaces, Mapping) and agent in spaces:
        space = spaces[agent]
    elif callable(space):
        try:
            space = space(agent)
        except Exception:  # a space of all agents
            space = None
    return action_of(type("Agent", (), {"action_space": space}) if space is not None else simulator)


def _is_mask(leaf: Mapping[str, Any], action: Mapping[str, Any] | None) -> bool:
    top = "path" not in leaf  # an entry of a nested dict is no mask
    return action is not None and top and "mask" in leaf["key"] and leaf["shape"] == [action.get("n")]


def _try_step(simulator: Any, per_agent: Mapping[str, Any], answer: dict[str, Any]) -> None:
    """Step all agents once, and record the form of the result."""
    kinds = {agent: kind for kind in answer["kinds"] for agent in kind["agents"]}
    actions = {agent: _allowed(values, kinds[agent]) for agent, values in per_agent.items()}
    try:
        returned = simulator.step(actions)
        answer["step"] = result_form(returned)
        if answer["step"] in ("timestep", "info"):
            raise ProbeError("it returned neither observations, rewards and ends nor a tuple of them")
    except Exception as error:
        text = str(error) if isinstance(error, ProbeError) else f"it raises {one_line(error)}"
        answer["notes"].append(f"step() was not understood: {text}. _step is a guess.")
        return
    answer["rewards"] = isinstance(returned[1], Mapping)
    answer["terminated"] = isinstance(returned[2], Mapping)
    answer["truncated"] = answer["step"] in ("five", "flags") and isinstance(returned[3], Mapping)


def _allowed(values: Any, kind: Mapping[str, Any]) -> Any:
    """Return an action that the mask of the agent allows."""
    if kind["mask"] is None:
        return sample_action(kind["action"], 0)
    mask = values[kind["mask"]]
    return int(kind["action"]["start"]) + next((i for i, allowed in enumerate(mask) if allowed), 0)
