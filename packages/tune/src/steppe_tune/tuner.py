"""``tune``: measure the ways to step an environment on this machine, and choose one."""

from __future__ import annotations

import os
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

from steppe.errors import ArgumentError
from steppe.registry import env_factory
from steppe.systems import usable_cores

from .choosing import batch_sizes, candidates, choose, seconds_to_make
from .env_cost import measure_cost
from .race import Report, race
from .results import Tuning

__all__ = ["tune"]

_DEFAULT_ENVS = 8
# Above this noise, the order of settings is a matter of chance.
_UNCERTAIN = 0.2
# Parts of the time for the cost of one environment, the settings, and other numbers of environments.
_PARTS = (0.15, 0.55, 0.3)


def tune(
    env: str | Callable[[], Any],
    *,
    num_envs: int | None = None,
    policy: Any = None,
    seconds: float = 20.0,
    seed: int = 0,
    report: Report | None = None,
) -> Tuning:
    """Measure how an environment is stepped fastest on this machine.

    The settings are one environment, SerialEnv, ParallelEnv with several numbers of processes and with
    ``caller_share``, and AsyncEnvPool in threads and processes (if steppe-pools is installed). They take turns in short
    slices, so that other programs on the machine slow down all of them alike::

        tuning = steppe.tune("gym:CartPole-v1")
        print(tuning.line)              # env = ParallelEnv(8, "gym:CartPole-v1", num_processes=2, caller_share=True)
        print(tuning.best.speed, tuning.limit, *tuning.reasons)

    All environments are closed at the end, also after an error.

    >>> from steppe import tune
    >>> tuning = tune("gym:CartPole-v1", num_envs=2, seconds=0.3)
    >>> tuning.best.speed > 0, tuning.name
    (True, 'gym:CartPole-v1')
    >>> print(tuning.line)
    env = ...

    Args:
        env: an id, or a function that makes an environment.
        num_envs: number of environments. None compares settings for 8, and then half, twice and four times as many.
        policy: chooses the actions, as for a collector; its time counts. None: random actions.
        seconds: how long the slices take, 20 by default. Making the environments is not counted, but settings are left
            out if making theirs takes longer than that.
        seed: the seed of the environments.
        report: called as ``report(done, text)`` while measuring: the part that is done, from 0 to 1, and a label.

    Returns:
        A :class:`Tuning`: all settings with their speeds, the best one, its line of Python, and the reasons.

    Raises:
        ArgumentError: ``num_envs`` or ``seconds`` is not above 0.
        SteppeError, Exception: the environment cannot be made or stepped.
    """
    if num_envs is not None and (isinstance(num_envs, bool) or not isinstance(num_envs, int) or num_envs < 1):
        raise ArgumentError(f"tune: num_envs must be a whole number >= 1, or None, found {num_envs!r}.")
    if not seconds > 0:
        raise ArgumentError(f"tune: seconds must be above 0, found {seconds!r}.")
    maker: Any = env_factory(env) if isinstance(env, str) else env  # a wrong id is an error at once
    n, cores = num_envs or _DEFAULT_ENVS, usable_cores()
    busy = _load() - 0.5
    progress = _Progress(report)

    progress.begin(_PARTS[0])
    progress(0.0, "one environment")
    cost = measure_cost(maker, policy=policy, num_envs=n, seconds=seconds * _PARTS[0], seed=seed)

    settings, left_out = candidates(
        cost, n, cores, pools=find_spec("steppe_pools") is not None, seconds=seconds, policy=policy is not None
    )
    options: dict[str, Any] = {"policy": policy, "seed": seed, "report": progress}
    part = _PARTS[1] if num_envs is None else _PARTS[1] + _PARTS[2]
    progress.begin(part)
    measured, warnings = race(settings, maker, seconds=seconds * part, **options)
    best, reasons = choose(measured, cost, cores)

    more = [] if num_envs is not None else batch_sizes(best.setting, n)
    more = [setting for setting in more if seconds_to_make(setting, cost, cores) <= seconds]
    if more:
        progress.begin(_PARTS[2])
        again, failures = race([best.setting, *more], maker, seconds=seconds * _PARTS[2], **options)
        warnings += failures
        # The sizes are compared with a second measurement of the best setting, in the same minutes.
        chosen, size_reasons = choose(again, cost, cores)
        measured += [each for each in again if each.setting != best.setting]
        if chosen.setting != best.setting:
            reference = next(each for each in again if each.setting == best.setting)
            gain = chosen.speed / reference.speed - 1
            reasons = [reasons[0], *size_reasons[1:]]
            reasons.append(f"{chosen.setting.num_envs} environments are {gain:.0%} faster than {n}.")
            best = chosen
    progress.end()

    if left_out:
        warnings.append(left_out)
    noisiest = max(measured, key=lambda each: each.noise)
    if best.noise > _UNCERTAIN:
        warnings.append(
            f"The choice is uncertain: the slices of the best setting differ by {best.noise:.0%}. Repeat the "
            "measurement while nothing else runs."
        )
    elif noisiest.noise > _UNCERTAIN / 2:
        warnings.append(
            f"The slices of {noisiest.setting.label} differ by {noisiest.noise:.0%}. A longer measurement is more "
            f"exact: {3 * seconds:.0f} seconds."
        )
    if busy > 0:
        warnings.append(f"Other programs used {busy + 0.5:.1f} of {cores} cores at the beginning.")
    if find_spec("steppe_pools") is None:
        warnings.append("AsyncEnvPool was not measured: pip install 'steppe[pools]'.")
    name = env if isinstance(env, str) else getattr(env, "__name__", "make")
    return Tuning(
        name=name,
        maker=f'"{env}"' if isinstance(env, str) else (name if name.isidentifier() else "make"),
        cores=cores,
        cost=cost,
        measured=tuple(measured),
        best=best,
        reasons=tuple(reasons),
        warnings=tuple(warnings),
    )


def _load() -> float:
    """Return the average number of running processes in the last minute; 0 where the system does not say."""
    return os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0


class _Progress:
    """Join the progress of several measurements.

    Args:
        report: the caller's function, or None.
    """

    def __init__(self, report: Report | None) -> None:
        self.report = report
        self.start = self.size = 0.0

    def begin(self, size: float) -> None:
        """Begin a measurement that is ``size`` of the whole."""
        self.start, self.size = self.start + self.size, size

    def __call__(self, done: float, text: str) -> None:
        if self.report is not None:
            self.report(min(1.0, self.start + done * self.size), text)

    def end(self) -> None:
        """Report that everything is done."""
        if self.report is not None:
            self.report(1.0, "done")
