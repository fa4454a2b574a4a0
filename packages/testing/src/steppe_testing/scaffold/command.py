"""``steppe new-plugin``: write a plugin package that passes the conformance kit."""

from __future__ import annotations

import argparse
from pathlib import Path

from steppe.cli import UsageError

__all__ = ["add_arguments", "help", "run"]


help = "write the package of a new plugin, with its tests"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of the command."""
    parser.add_argument(
        "name", metavar="NAME", help="namespace: warehouse makes warehouse:small, in ./warehouse-steppe"
    )
    parser.add_argument(
        "--kind",
        choices=("single", "group", "batch", "transforms"),
        default="single",
        help="one agent, groups of agents, a simulator that steps many at once, or transforms (default: single)",
    )
    parser.add_argument(
        "--library", metavar="REQUIREMENT", help="wrapped package, with its versions: 'warehouse>=1,<2'"
    )
    parser.add_argument("--make", metavar="MODULE:NAME", help="simulator class or factory (default: auto-detected)")
    for method in ("reset", "step"):
        parser.add_argument(
            f"--{method}", metavar="METHOD", help=f"the simulator's method that does a {method} (default: {method})"
        )
    parser.add_argument("--names", metavar="A,B", help="names of the environments (default: small,large)")
    parser.add_argument("--transform", metavar="A,B", help="names of transforms to add")
    parser.add_argument(
        "--dir", default=".", metavar="FOLDER", help="parent of the new folder (default: the current folder)"
    )


def run(args: argparse.Namespace) -> int:
    """Write the package and print the next commands."""
    from . import Plan, look_at, write

    if args.kind == "transforms":
        for option in ("library", "make", "names", "reset", "step"):
            if getattr(args, option) is not None:
                raise UsageError(
                    f"--{option} is for environments, and --kind transforms makes none: leave out one of them"
                )
    plan = Plan.of(
        args.name,
        kind=args.kind,
        library=args.library,
        make=args.make,
        names=args.names,
        transforms=args.transform,
        methods={method: getattr(args, method) or method for method in ("reset", "step")},
    )
    folder = Path(args.dir).expanduser() / plan.distribution
    if folder.exists():
        raise UsageError(f"{folder} exists, and nothing is overwritten: move it away, or choose another name or --dir")
    simulator = look_at(plan)
    files = write(plan, simulator, folder)
    print(f"{folder}: {len(files)} files")
    for file in files:
        print(f"  {file}")
    for note in simulator.notes:
        print(f"\n{note}")
    check = f"steppe check {plan.namespace}:{plan.names[0]}" if plan.names else "steppe plugins --load"
    commands = [f"cd {folder}", "python -m pip install -e '.[test]'", check, "python -m pytest"]
    print("\nNext:\n" + "\n".join(f"  {command}" for command in commands))
    return 0
