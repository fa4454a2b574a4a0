"""Inspect an unknown simulator of several agents, which returns a value for each agent."""

from __future__ import annotations

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


def describe_agents(simulator: Any, answer: dict[str, Any]) -> None:
    """Reset and step the simulator, and add to the answer what its environment needs.

    ``agents``: their names; ``layout``: ``"agent"`` if a reset returns a dict of agents, ``"entry"`` if it returns
    entries with a dict of agents each; ``observation``: the entries of an agent; ``shared``: the entries that all
    agents share; ``mask``: the key of the entry that says which actions are allowed, or None; ``rewards``,
    ``terminated``, ``truncated``: whether a step returns these by agent.

    Raises:
        ProbeError: it has no list of agents, or its agents differ.
    """
    answer["seed"] = seed_route(simulator, answer)
    try:
        observed, answer["reset"] = reset_simulator(simulator, answer["seed"], 0)
    except Exception as error:
        raise ProbeError(f"reset() raises {one_line(error)}") from error
    agents = answer["agents"] = _agents(simulator)
    if not isinstance(observed, Mapping):
        raise ProbeError(f"reset() returned a {type(observed).__name__}, not a dict with values of agents")
    per_agent, shared = _split(observed, agents, answer)
    entries = [leaves_of(values, None, answer["notes"] if i == 0 else []) for i, values in enumerate(per_agent)]
    answer["observation"] = entries[0]
    for agent, other in zip(agents[1:], entries[1:], strict=True):
        if [(leaf["key"], leaf["shape"]) for leaf in other] != [(leaf["key"], leaf["shape"]) for leaf in entries[0]]:
            raise ProbeError(f"{agents[0]!r} and {agent!r} do not observe the same entries: write _data by hand")
    answer["single"] = not isinstance(per_agent[0], Mapping)
    answer["shared"] = leaves_of(shared, None, answer["notes"])
    answer["action"] = _action(simulator, agents[0])
    if answer["action"] is None:
        answer["notes"].append("No action space was found: the action spec is a guess, and step() was not tried.")
    answer["mask"] = next((leaf["key"] for leaf in entries[0] if _is_mask(leaf, answer["action"])), None)
    answer["shapes"] = {}
    answer.update(rewards=True, terminated=False, truncated=False)
    if answer["action"] is not None:
        _try_step(simulator, agents, per_agent, answer)


def _agents(simulator: Any) -> list[str]:
    for name in _AGENTS:
        agents = value_of(getattr(simulator, name, None))
        if isinstance(agents, Mapping):
            agents = list(agents)
        listed = isinstance(agents, Sequence) and not isinstance(agents, str) and bool(agents)
        if listed and all(isinstance(agent, str) for agent in agents):
            return list(agents)
    raise ProbeError(f"it has no list of the names of its agents, called {', '.join(_AGENTS)}")


def _split(observed: Mapping[Any, Any], agents: list[str], answer: dict[str, Any]) -> tuple[list[Any], dict[str, Any]]:
    """Return the values of each agent, and the entries that all share."""
    if all(agent in observed for agent in agents):
        answer["layout"] = "agent"
        return [observed[agent] for agent in agents], {key: observed[key] for key in observed if key not in agents}
    answer["layout"] = "entry"
    own = [key for key, value in observed.items() if isinstance(value, Mapping) and set(value) == set(agents)]
    if not own:
        raise ProbeError(f"reset() returned {sorted(map(str, observed))}, none of them with a value for each agent")
    shared = {key: value for key, value in observed.items() if key not in own}
    return [{key: observed[key][agent] for key in own} for agent in agents], shared


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
    return action is not None and "mask" in leaf["key"] and leaf["shape"] == [action.get("n")]


def _try_step(simulator: Any, agents: list[str], per_agent: list[Any], answer: dict[str, Any]) -> None:
    """Step all agents once, and record the form of the result."""
    actions = {agent: _allowed(values, answer) for agent, values in zip(agents, per_agent, strict=True)}
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


def _allowed(values: Any, answer: Mapping[str, Any]) -> Any:
    """Return an action that the mask of the agent allows."""
    if answer["mask"] is None:
        return sample_action(answer["action"], 0)
    mask = values[answer["mask"]]
    return int(answer["action"]["start"]) + next((i for i, allowed in enumerate(mask) if allowed), 0)
