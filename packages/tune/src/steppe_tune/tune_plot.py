"""The plot of ``steppe tune --plot``."""

from __future__ import annotations

from pathlib import Path

from steppe.cli import UsageError

from .results import Tuning

__all__ = ["check_plotting", "plot_tuning"]


def check_plotting() -> None:
    """Raise a UsageError unless matplotlib is installed."""
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        raise UsageError("--plot needs matplotlib: pip install 'steppe-tune[plot]'") from None


def plot_tuning(tuning: Tuning, path: Path) -> None:
    """Draw the speed of each setting, with quartiles, and the limit.

    Args:
        tuning: the result.
        path: the file to write; its suffix is the format.
    """
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    labels = [each.setting.label for each in tuning.measured]
    speeds = [each.speed for each in tuning.measured]
    errors = [
        [each.speed - each.low for each in tuning.measured],
        [each.high - each.speed for each in tuning.measured],
    ]
    colors = ["tab:orange" if each.setting == tuning.best.setting else "tab:blue" for each in tuning.measured]
    figure, axes = pyplot.subplots(figsize=(8, 1 + 0.4 * len(labels)), layout="constrained")
    axes.barh(labels, speeds, xerr=errors, color=colors)
    axes.axvline(tuning.limit, color="black", linestyle="--", label=f"limit: {tuning.cores} cores")
    axes.invert_yaxis()
    axes.set_xlabel("frames per second")
    axes.set_title(tuning.name)
    axes.legend()
    figure.savefig(path)
    pyplot.close(figure)
