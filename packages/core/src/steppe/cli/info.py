"""``steppe info``: what to paste in a bug report."""

from __future__ import annotations

import argparse
import os
import platform
from typing import Any

from .output import one_line, print_json

_PACKAGES = ("steppe", "torch", "tensordict", "numpy", "pluggy", "importlib-metadata", "packaging", "cloudpickle")


def add(commands: Any) -> None:
    parser = commands.add_parser("info", help="print what to paste in a bug report")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    told = gather()
    if args.json:
        print_json(told)
        return 0
    width = max(len(name) for section in told.values() for name in section)
    for section, entries in told.items():
        if entries:
            print(f"{section}:")
            print("\n".join(f"  {name.ljust(width)}  {value}" for name, value in entries.items()))
    return 0


def gather() -> dict[str, dict[str, str]]:
    """Versions from metadata, plugins with their libraries, backends, and the variables that steppe reads."""
    from ..registry.discovery import installed

    packages = {name: found.version if (found := installed(name)) else "not installed" for name in _PACKAGES}
    return {
        "system": {
            "python": platform.python_version(),
            "platform": platform.platform(),
            "cores": _cores(),
        },
        "packages": packages,
        "plugins": _plugins(),
        "backends": _backends(),
        "environment": {name: value for name, value in sorted(os.environ.items()) if name.startswith("STEPPE_")},
    }


def _cores() -> str:
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return f"{usable} usable of {os.cpu_count()}"


def _plugins() -> dict[str, str]:
    from ..registry import current, list_plugins

    told: dict[str, str] = {}
    for record in list_plugins():
        version = f"{record.dist} {record.version}"
        if record.kind != "env":
            told.setdefault(record.dist, f"{version}, {record.state}")
            continue
        try:
            library = current().library(record.name)
            state = f"{library.dist} {library.version}" if library else "no library"
        # A bug report is about what does not work.
        except Exception as error:
            state = one_line(error)
        name = f"{record.name}:" if f"{record.name}:" not in told else f"{record.name}: ({record.dist})"
        told[name] = f"{version}, {state}"
    return told


def _backends() -> dict[str, str]:
    from ..versions import effective_backends

    return dict(effective_backends())
