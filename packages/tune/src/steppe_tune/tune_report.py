"""The report of ``steppe tune``: a table, the best line, reasons and warnings."""

from __future__ import annotations

from steppe.cli import print_pairs, print_table

from .results import Tuning

__all__ = ["print_tuning"]


def print_tuning(tuning: Tuning) -> None:
    """Print the result of a tuning."""
    cost = tuning.cost
    print_pairs(
        {
            "environment": tuning.name + (f" ({cost.rows} in one)" if cost.rows > 1 else ""),
            "a frame": f"{_duration(cost.frame)} in rollouts, resets included",
            "a step": f"{_duration(cost.step)} by itself; one in twenty takes {_duration(cost.slow_step)} or longer",
            "a reset": _duration(cost.reset),
            **({"the policy": f"{_duration(cost.policy)} for a batch"} if cost.policy else {}),
            "limit": f"{tuning.limit:,.0f} frames/s: {tuning.cores} cores / {_duration(cost.frame)}",
        }
    )
    print()
    rows = [
        (
            "* " + each.setting.label if each.setting == tuning.best.setting else "  " + each.setting.label,
            f"{each.speed:,.0f}",
            f"{each.speed / tuning.limit:.0%}",
            f"{each.noise:.0%}",
            f"{each.seconds_to_start:.1f} s",
        )
        for each in tuning.measured
    ]
    print_table(("  setting", "frames/s", "of the limit", "noise", "start"), rows)
    print(f"\n{tuning.line}\n")
    for reason in tuning.reasons:
        print(reason)
    for warning in tuning.warnings:
        print(f"Note: {warning}")


def _duration(seconds: float) -> str:
    for unit, factor in (("s", 1.0), ("ms", 1e3), ("us", 1e6)):
        if seconds * factor >= 1 or unit == "us":
            return f"{seconds * factor:.3g} {unit}"
    return ""
