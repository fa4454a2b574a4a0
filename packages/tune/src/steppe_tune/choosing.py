"""Which settings are measured, and which of them is the best: functions of measured costs alone."""

from __future__ import annotations

from collections.abc import Sequence

from .results import EnvCost, Measured, Setting

__all__ = ["batch_sizes", "candidates", "choose"]

# Two settings whose speeds differ by less are equally fast, whatever the measured noise is.
_EQUAL = 0.03
# A slow step takes so many times longer than a usual one if an environment is uneven.
_UNEVEN = 2.0
# Steps that are shorter (seconds) are dominated by the work between the steps.
_SHORT = 100e-6
# Steps that are longer may mostly wait, for a simulator or the network.
_LONG = 1e-3


def candidates(
    cost: EnvCost, num_envs: int, cores: int, *, pools: bool, seconds: float, policy: bool = False
) -> tuple[list[Setting], str]:
    """Return the settings to compare for a number of environments, and a sentence about those that are left out.

    Args:
        cost: what one environment costs.
        num_envs: number of environments.
        cores: number of usable cores.
        pools: whether steppe-pools is installed.
        seconds: how long making the environments of all settings may take.
        policy: whether a policy chooses the actions. Where it acts then matters too, unless steps are so short that
            messages about single steps cost more than the steps.
    """
    settings = [Setting("one")]
    if num_envs > 1:
        settings.append(Setting("serial", num_envs))
        counts = {max(2, cores // 2), cores, 2 * cores}
        if cost.frame > _LONG:
            counts.add(num_envs)  # they may wait for something else than a core
        for processes in sorted({min(num_envs, count) for count in counts}):
            settings.append(Setting("processes", num_envs, processes))
        if (shared := min(num_envs, cores)) > 1:
            settings.append(Setting("processes", num_envs, shared, caller_share=True))
        if pools and not cost.is_batch:
            settings += [Setting("pool", num_envs), Setting("pool", num_envs, threads=True)]
            if policy and cost.step > _SHORT:
                places = [(threads, served) for threads in (True, False) for served in (True, False)]
                settings += [Setting("collector", num_envs, threads=each[0], served=each[1]) for each in places]
    kept: list[Setting] = []
    left_out: list[Setting] = []
    remaining = seconds
    for setting in settings:
        takes = seconds_to_make(setting, cost, cores)
        if setting.kind == "one" or takes <= remaining:
            kept.append(setting)
            remaining -= takes
        else:
            left_out.append(setting)
    if not left_out:
        return kept, ""
    names = "; ".join(setting.label for setting in left_out)
    return kept, f"Not measured, because making an environment takes {cost.making:.1f} s: {names}."


def seconds_to_make(setting: Setting, cost: EnvCost, cores: int) -> float:
    """Return an estimate of how long making the environments of a setting takes."""
    at_once = {"processes": min(setting.num_processes, cores), "pool": cores, "collector": cores}.get(setting.kind, 1)
    return cost.making * setting.num_envs / at_once


def batch_sizes(best: Setting, num_envs: int) -> list[Setting]:
    """Return the best setting with other numbers of environments: half, twice and four times as many."""
    if best.kind in ("one", "pool", "collector"):
        return []
    sizes = [size for size in (num_envs // 2, 2 * num_envs, 4 * num_envs) if size >= max(2, best.num_processes)]
    return [
        Setting(best.kind, size, best.num_processes, caller_share=best.caller_share, threads=best.threads)
        for size in sizes
    ]


def choose(measured: Sequence[Measured], cost: EnvCost, cores: int) -> tuple[Measured, list[str]]:
    """Return the best setting, and sentences that say why.

    The best setting is the simplest of those that are as fast as the fastest, within the noise of the measurement.

    Args:
        measured: the settings, at least one.
        cost: what one environment costs.
        cores: number of usable cores.
    """
    fastest = max(measured, key=lambda each: each.speed)
    equal = [each for each in measured if _as_fast(each, fastest)]
    best = min(equal, key=lambda each: each.setting.complexity)
    reasons = [_why(best.setting, measured, cost, cores)]
    if best is not fastest:
        reasons.append(
            f"{fastest.setting.label} was {fastest.speed / best.speed - 1:.0%} faster, which is within the noise of "
            f"the measurement, and is less simple."
        )
    reached = best.speed * cost.frame / cores
    if best.setting.kind != "one":
        reasons.append(f"It reaches {reached:.0%} of the limit, {cores} cores that only step environments.")
    if best.setting.kind != "collector" and cost.policy > cost.frame * best.setting.num_envs / cores > 0:
        reasons.append(
            f"The policy takes {cost.policy * 1e3:.2f} ms for each batch, longer than the steps: a larger batch, or a "
            "collector with worker processes (MultiSyncDataCollector), divides its cost."
        )
    return best, reasons


def _as_fast(each: Measured, fastest: Measured) -> bool:
    noise = max(_EQUAL, each.noise + fastest.noise)
    return each.speed >= fastest.speed * (1 - min(noise, 0.25))


def _why(best: Setting, measured: Sequence[Measured], cost: EnvCost, cores: int) -> str:
    """Return the main reason for a setting."""
    seconds = min(cost.step, cost.frame)
    step = f"{seconds * 1e6:.0f} us" if seconds < 1e-3 else f"{seconds * 1e3:.1f} ms"
    if best.kind == "one" and cost.is_batch:
        return (
            f"The library steps {cost.rows} environments at once: for more of them, its environment has an argument, "
            "such as num_envs."
        )
    if best.kind == "one":
        return "No batch is faster than one environment."
    if best.kind == "serial":
        if cores == 1:
            return "There is one core, which this process uses."
        return f"A step takes {step}: waking other processes takes longer than they save."
    if best.kind == "collector":
        if best.served:
            return (
                f"A step takes {step}: no environment waits for another one, and the policy, served in one place, acts "
                "for those that wait at the same time."
            )
        return f"A step takes {step}, and the policy is small enough to act in each worker."
    if best.kind == "pool":
        if cost.unevenness >= _UNEVEN:
            return (
                f"Steps are uneven: one in twenty takes {cost.unevenness:.1f} times as long as usual. In a pool, the "
                "other environments do not wait for it."
            )
        return f"A step takes {step} and mostly waits, so that no environment should wait for the others."
    if best.caller_share:
        kind = "short" if seconds < _SHORT else "even"
        return f"Steps are {kind} ({step}): the caller steps a share of the environments itself instead of waiting."
    if best.num_processes > cores:
        return f"A step takes {step} and waits for a part of it, so that more processes than cores are busy."
    return f"A step takes {step}, long enough to divide the environments among {best.num_processes} processes."
