"""``steppe tune``: measure how an environment is stepped fastest on this machine."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from steppe.cli import UsageError, import_policy, natural, positive

__all__ = ["add_arguments", "help", "run"]

help = "measure how to step an environment fastest"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of the command."""
    parser.description = (
        "Measure one environment, SerialEnv, ParallelEnv and AsyncEnvPool on this machine, and print the best setting "
        "as a line of Python."
    )
    parser.add_argument("id", metavar="ID", help="such as gym:Pendulum-v1")
    parser.add_argument(
        "--num-envs",
        type=positive,
        metavar="N",
        help="number of environments (default: 8, and then other numbers for the best setting)",
    )
    parser.add_argument("--policy", metavar="MODULE:CALLABLE", help="chooses the actions (default: random ones)")
    parser.add_argument("--seconds", type=float, default=20.0, metavar="S", help="time to measure (default: 20)")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="draw the speeds, .png, .svg or .pdf")
    parser.add_argument("--seed", type=natural, default=0, metavar="S", help="seed of the environments (default: 0)")


def run(args: argparse.Namespace) -> int:
    """Measure, and print the table.

    Raises:
        UsageError: the arguments are wrong.
    """
    from steppe.registry import env_factory

    env_factory(args.id)  # report a wrong id before torch is imported
    if not args.seconds > 0:
        raise UsageError(f"--seconds must be above 0, got {args.seconds}")
    if args.plot is not None:
        from .tune_plot import check_plotting, plot_tuning

        check_plotting()
        if args.plot.suffix.lower() not in (".png", ".svg", ".pdf"):
            raise UsageError(f"--plot {str(args.plot)!r}: the name of a plot ends in .png, .svg or .pdf")
    policy = import_policy(args.policy) if args.policy else None
    from steppe.imports import import_tensordict

    import_tensordict()
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn

    from .tune_report import print_tuning
    from .tuner import tune

    progress = Progress(
        *("{task.description}", BarColumn(), TaskProgressColumn()),
        console=Console(stderr=True),
        disable=not sys.stderr.isatty(),
        transient=True,
    )
    with progress:
        task = progress.add_task(args.id, total=1.0)
        tuning = tune(
            args.id,
            num_envs=args.num_envs,
            policy=policy,
            seconds=args.seconds,
            seed=args.seed,
            report=lambda done, text: progress.update(task, completed=done, description=text),
        )
    print_tuning(tuning)
    if args.plot is not None:
        plot_tuning(tuning, args.plot)
        print(f"\nThe plot is in {args.plot}.")
    return 0
