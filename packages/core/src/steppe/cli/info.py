"""``steppe info``: print versions and settings for bug reports."""

from __future__ import annotations

import argparse
import os
import platform

from .output import one_line, print_json, print_pairs

_PACKAGES = ("steppe", "torch", "tensordict", "numpy", "pluggy", "importlib-metadata", "packaging", "cloudpickle")

help = "print versions and settings for a bug report"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(args: argparse.Namespace) -> int:
    from ..registry.discovery import installed
    from ..versions import effective_backend

    packages = {name: installed(name) for name in _PACKAGES}
    backend = effective_backend()
    sections: dict[str, dict[str, str]] = {
        "system": {"python": platform.python_version(), "platform": platform.platform(), "cores": _cores()},
        "packages": {name: package.version if package else "not installed" for name, package in packages.items()},
        "plugins": _plugins(),
        "backends": {"gym": backend} if backend else {},
        "environment": {name: value for name, value in sorted(os.environ.items()) if name.startswith("STEPPE_")},
    }
    if args.json:
        print_json(sections)
        return 0
    width = max(len(name) for section in sections.values() for name in section)
    for title, section in sections.items():
        if section:
            print(f"{title}:")
            print_pairs(section, width=width, indent="  ")
    return 0


def _cores() -> str:
    from ..systems import usable_cores

    return f"{usable_cores()} usable of {os.cpu_count()}"


def _plugins() -> dict[str, str]:
    """Return the installed plugins, each with its library or its problem."""
    from ..registry import current
    from .plugins import load_record

    registry = current()
    plugins: dict[str, str] = {}
    for record in registry.records():
        version = f"{record.dist} {record.version}"
        if record.kind != "env":
            plugins.setdefault(record.dist, f"{version}, {record.state}")
            continue
        loaded = load_record(registry, record)
        library = loaded.library
        state = f"{library.dist} {library.version}" if library else one_line(loaded.problem or "no library")
        name = f"{record.name}:" if f"{record.name}:" not in plugins else f"{record.name}: ({record.dist})"
        plugins[name] = f"{version}, {state}"
    return plugins
