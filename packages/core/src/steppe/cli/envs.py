"""``steppe envs``: list the environments of a namespace, or their number in each namespace."""

from __future__ import annotations

import argparse
from fnmatch import fnmatchcase

from .output import UsageError, one_line, print_json, print_table

help = "list environments"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("namespace", nargs="?", metavar="NAMESPACE", help="such as gym; without it, every namespace")
    parser.add_argument(
        "pattern", nargs="?", metavar="PATTERN", help="a part of the name, or a pattern like 'Half*-v5'"
    )
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(args: argparse.Namespace) -> int:
    return _all(args) if args.namespace is None else _one(args)


def _one(args: argparse.Namespace) -> int:
    from ..registry import list_envs

    names = list_envs(args.namespace)
    if args.pattern:
        names = [name for name in names if _matches(name, args.pattern)]
    if args.json:
        print_json(names)
    elif names:
        print("\n".join(names))
    if args.pattern and not names:
        raise UsageError(f"no environment of '{args.namespace}:' matches {args.pattern!r}")
    return 0


def _matches(name: str, pattern: str) -> bool:
    name, pattern = name.lower(), pattern.lower()
    return fnmatchcase(name, pattern) if any(char in pattern for char in "*?[") else pattern in name


def _all(args: argparse.Namespace) -> int:
    from ..registry import current, list_envs

    counts: dict[str, int | str] = {}
    for namespace in current().namespaces():
        try:
            counts[namespace] = len(list_envs(namespace))
        # The error of one plugin must not hide the others.
        except Exception as error:
            counts[namespace] = one_line(error)
    if args.json:
        print_json({name: count if isinstance(count, int) else None for name, count in counts.items()})
    elif not counts:
        print("No plugin is installed. The first: pip install 'steppe[gym]'.")
    else:
        print_table(["namespace", "environments"], [[name, str(count)] for name, count in counts.items()])
    return 0
