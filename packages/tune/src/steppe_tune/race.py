"""Interleaved slices: settings take turns, so that a change of the machine's speed changes all of them alike."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from .contestants import Contestant, make_contestant
from .results import Measured, Setting

__all__ = ["Report", "measured_of", "race"]

#: Called with the part of the work that is done, from 0 to 1, and what is measured now.
Report: TypeAlias = "Callable[[float, str], object]"

_ROUNDS = 9
_FEWEST_ROUNDS = 3
# Shorter slices are dominated by the first step after a pause.
_SHORTEST = 0.02


def race(
    settings: Sequence[Setting], maker: Any, *, policy: Any, seconds: float, seed: int, report: Report
) -> tuple[list[Measured], list[str]]:
    """Measure settings in slices that take turns, and close their environments.

    Args:
        settings: the settings.
        maker: an id, or a function that makes an environment.
        policy: chooses the actions; None for random ones.
        seconds: how long the slices take together; each setting has at least three, of at least one step.
        seed: the seed of the environments.
        report: called before each slice.

    Returns:
        The settings that could be measured, and a sentence about each that could not.

    Raises:
        Exception: the error of the first setting, if none can be measured.
    """
    contestants: list[tuple[Contestant, int, float]] = []
    failures: list[str] = []
    first: Exception | None = None
    share = max(_SHORTEST, seconds / _ROUNDS / max(1, len(settings)))
    samples: dict[Setting, list[float]] = {}
    try:
        for setting in settings:
            report(0.0, f"making {setting.label}")
            began = time.perf_counter()
            try:
                contestant = make_contestant(setting, maker, policy, seed)
            except Exception as error:
                first = first or error
                failures.append(f"{setting.label} cannot be measured: {type(error).__name__}: {_first_line(error)}")
                continue
            started = time.perf_counter() - began
            contestants.append((contestant, _steps_for(contestant, share), started))
        if not contestants and first is not None:
            raise first
        began = time.perf_counter()
        for number in range(_ROUNDS):
            if number >= _FEWEST_ROUNDS and time.perf_counter() - began > seconds:
                break
            # Another setting is the first in each round.
            shift = number % len(contestants)
            for place, (contestant, steps, _) in enumerate(contestants[shift:] + contestants[:shift]):
                report((number + place / len(contestants)) / _ROUNDS, contestant.setting.label)
                start = time.perf_counter()
                frames = contestant.run(steps)
                samples.setdefault(contestant.setting, []).append(frames / (time.perf_counter() - start))
    finally:
        for contestant, _, _ in contestants:
            contestant.close()
    return [measured_of(each.setting, samples[each.setting], started) for each, _, started in contestants], failures


def measured_of(setting: Setting, speeds: Sequence[float], seconds_to_start: float = 0.0) -> Measured:
    """Return the median and quartiles of the speeds of slices.

    Args:
        setting: the setting.
        speeds: frames per second of each slice, at least one.
        seconds_to_start: see :class:`Measured`.
    """
    low, middle, high = statistics.quantiles(speeds, n=4, method="inclusive") if len(speeds) > 1 else (speeds[0],) * 3
    return Measured(setting, middle, low, high, len(speeds), seconds_to_start)


def _steps_for(contestant: Contestant, seconds: float) -> int:
    """Return the number of steps that take so long, at least 1."""
    steps, took = 1, 0.0
    for _ in range(12):
        start = time.perf_counter()
        contestant.run(steps)
        took = time.perf_counter() - start
        if took >= seconds / 4:
            break
        steps *= 4 if took < seconds / 16 else 2
    return max(1, round(steps * seconds / max(took, 1e-9)))


def _first_line(error: Exception) -> str:
    return next(iter(str(error).splitlines()), "")
