"""``steppe plugins``: list the installed plugins and their states."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from .output import print_json, print_table

if TYPE_CHECKING:
    from ..registry import PluginRecord, Registry


help = "list the installed plugins"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--load", action="store_true", help="import each; exit status 1 if one is broken")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument(
        "--all", action="store_true", help="each transform, and what could be installed, in rows of its own"
    )


def run(args: argparse.Namespace) -> int:
    from ..registry import current

    registry = current()
    records = registry.records()
    if args.load:
        records = [load_record(registry, record) for record in records]
    missing = _not_installed(registry) if args.all else []
    if args.json:
        print_json([_as_json(record) for record in records] + missing)
    else:
        _print(records, missing, every_transform=args.all)
    return 1 if args.load and any(record.state == "broken" for record in records) else 0


def load_record(registry: Registry, record: PluginRecord) -> PluginRecord:
    """Import a plugin that is not hidden; return its record with its new state, and its library or its problem."""
    from dataclasses import replace

    if record.state == "blocked":
        return record
    if record.state == "conflict":
        return replace(record, state="broken")
    try:
        registry.plugins.load(record)
        library = registry.library(record.name) if record.kind == "env" else None
    # Any error of one plugin must not hide the others.
    except Exception as error:
        return replace(record, state="broken", problem=str(error) or type(error).__name__)
    return replace(record, state="loaded", library=library)


def _not_installed(registry: Registry) -> list[dict[str, str]]:
    from ..registry.known import install

    return [
        {
            "kind": kind,
            "name": name,
            "dist": package,
            "state": "not installed",
            "problem": install(package),
        }
        for kind, name, package in registry.not_installed()
    ]


def _as_json(record: PluginRecord) -> dict[str, object]:
    from dataclasses import asdict

    return {**asdict(record), "library_range": record.library_range}


def _print(records: list[PluginRecord], missing: list[dict[str, str]], *, every_transform: bool) -> None:
    groups: dict[tuple[str, ...], list[PluginRecord]] = {}
    for record in records:
        alone = record.kind == "env" or every_transform
        groups.setdefault((record.kind, record.dist, record.state, record.name if alone else ""), []).append(record)
    rows = [
        [first.kind, _names(group), first.dist, first.version, first.library_range, _state(first)]
        for group in groups.values()
        for first in group[:1]
    ]
    rows += [[name["kind"], name["name"], name["dist"], "", name["problem"], name["state"]] for name in missing]
    if not rows:
        print("No plugin is installed. The first: pip install 'steppe[gym]'.")
        return
    print_table(["kind", "name", "package", "version", "needs", "state"], rows)
    for problem in dict.fromkeys(record.problem for record in records if record.problem):
        print(f"\n{problem}")


def _names(group: list[PluginRecord]) -> str:
    names = [record.name for record in group]
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def _state(record: PluginRecord) -> str:
    if record.state != "loaded":
        return record.state
    return f"OK ({record.library.dist} {record.library.version})" if record.library else "OK"
