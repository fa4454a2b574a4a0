"""Play episodes of an unknown simulator, to see whether a seed determines its data and whether episodes end."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from steppe_testing.scaffold.probe_values import ProbeError, one_line, reset_simulator

_EPISODE = 1000  # an episode should end within this number of steps
_COMPARED = 12  # number of steps to compare when looking for randomness
_SEEDS = 4

#: Takes the number of a step, steps the simulator, and returns the observation, the reward, and whether it has ended.
Play = Callable[[int], tuple[Any, Any, bool]]


def parts_of(returned: Any, form: str) -> tuple[Any, Any, Any, Any]:
    """Return the observation, the reward, and the two ends of the result of a step.

    Raises:
        ProbeError: it has no end of the episode.
    """
    if form == "timestep":
        last = bool(returned.last())
        return returned.observation, returned.reward, last and returned.discount == 0, last and returned.discount != 0
    if form == "info":
        raise ProbeError("it returned a dict instead of the end of the episode, a bool")
    return returned[0], returned[1], returned[2], returned[3] if form in ("five", "flags") else False


def try_episodes(simulator: Any, answer: dict[str, Any], play: Play) -> None:
    """Test whether a seed determines the data of this and later episodes, and whether episodes end."""
    route = answer["seed"]
    try:
        if route in ("reset", "method"):
            runs = {seed: _trace(simulator, route, play, seed, episodes=1) for seed in range(_SEEDS)}
            answer["seed_matters"] = any(run != runs[0] for run in runs.values())
            answer["deterministic"] = _trace(simulator, route, play, 0, episodes=1) == runs[0]
            later = [_trace(simulator, route, play, 0, episodes=3) for _ in range(2)]
            answer["later_follow"] = later[0] == later[1]
        elif route == "none":
            answer["seed_matters"] = False
            answer["deterministic"] = len({repr(_trace(simulator, route, play, 0, episodes=1)) for _ in range(3)}) == 1
        answer["ends"] = all(_length(simulator, route, play) is not None for _ in range(2))
    except Exception as error:
        answer["notes"].append(f"Episodes could not be played: {one_line(error)}.")


def _trace(simulator: Any, route: str, play: Play, seed: int, episodes: int) -> list[Any]:
    trace = []
    for episode in range(episodes):
        trace.append(as_python(reset_simulator(simulator, route, None if episode else seed)[0]))
        for step in range(_COMPARED):
            observation, reward, ended = play(step)
            trace.append([as_python(observation), as_python(reward)])
            if ended:
                break
    return trace


def _length(simulator: Any, route: str, play: Play) -> int | None:
    """Return the number of steps until the end of an episode, or None if it does not end."""
    reset_simulator(simulator, route, None)
    return next((step + 1 for step in range(_EPISODE) if play(step)[2]), None)


def as_python(value: Any) -> Any:
    """Return the values of arrays and of dicts of arrays as lists, which can be compared."""
    if isinstance(value, Mapping):
        return {str(key): as_python(part) for key, part in value.items()}
    return value.tolist() if hasattr(value, "tolist") else value
