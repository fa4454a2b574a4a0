"""Write what follows from the packages' pyproject.toml files; ``--check`` only says whether it is up to date.

Written are the extras of the core, the table of the names that first-party packages provide, the tables of versions in
the READMEs that have a place for one, the table of all transforms in docs/transforms.md, and the table of the core's
modules in ARCHITECTURE.md.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tools.docstrings import core_transforms, summary
from tools.module_table import ARCHITECTURE, with_table
from tools.workspace import ROOT, Package, packages, rows

CORE = ROOT / "packages/core/pyproject.toml"
TABLE = ROOT / "packages/core/src/steppe/registry/known.json"
TRANSFORMS = ROOT / "docs/transforms.md"

#: The kinds of plugins, and the group of entry points of each: GROUPS of steppe.registry.records.
_KINDS = {
    "env": "steppe.envs",
    "env class": "steppe.env_classes",
    "transform": "steppe.transforms",
    "collector": "steppe.collectors",
    "logger": "steppe.loggers",
    "command": "steppe.commands",
}

_EXTRAS = re.compile(r"(?<=# Written by `nox -s sync`: do not edit\.\n).*?(?=# End of what is written\.\n)", re.DOTALL)

_VERSIONS = re.compile(
    r"(?<=<!-- Written by `nox -s sync` from pyproject\.toml: do not edit\. -->\n).*?"
    r"(?=<!-- End of what is written\. -->)",
    re.DOTALL,
)

_TRANSFORMS = re.compile(
    r"(?<=<!-- Written by `nox -s sync` from the entry points: do not edit\. -->\n).*?"
    r"(?=<!-- End of what is written\. -->)",
    re.DOTALL,
)


def extras(found: list[Package]) -> str:
    """The body of the core's ``[project.optional-dependencies]``."""
    lines = []
    plugins = [package for package in found if package.name != "steppe"]
    for package in plugins:
        wanted = f"[{package.alternatives[0]}]" if package.alternatives else ""
        lines.append(f'{package.short} = ["{package.name}{wanted}{_compatible(package.version)}"]\n')
    families = [package.short for package in plugins if package.entry_points("steppe.transforms")]
    # What brings gigabytes does not come with `all`; such a package says `heavy = true` itself.
    light = [package.short for package in plugins if not _settings(package).get("heavy") and package.short != "testing"]
    if families:
        lines.append(f'transforms = ["steppe[{",".join(families)}]"]\n')
    lines.append(f'all = ["steppe[{",".join(light)}]"]\n')
    return "".join(lines)


def table(found: list[Package]) -> str:
    """The whole of ``known.json``."""
    names = {
        kind: {name: package.name for package in found for name in package.entry_points(group)}
        for kind, group in _KINDS.items()
    }
    alternatives = {package.name: package.alternatives for package in found if package.alternatives}
    written = {
        "names": {kind: dict(sorted(provided.items())) for kind, provided in names.items()},
        "alternatives": alternatives,
    }
    return json.dumps(written, indent=2) + "\n"


def _settings(package: Package) -> dict[str, object]:
    return dict(package.pyproject.get("tool", {}).get("steppe", {}))


def _compatible(version: str) -> str:
    major, minor = version.split(".")[:2]
    return f">={major}.{minor},<{major}.{int(minor) + 1}"


def versions(package: Package) -> str:
    """The table of a package's README: what it requires of its library, and what its tests run with."""
    wanted = [one for one in package.requirements if not one.name.startswith("steppe")]
    ranges = ", ".join(f"`{one}`" for one in wanted)
    lines = [
        f"\nRequired: {ranges}. Tested with:\n\n",
        "| Row of the matrix | Installs | Python |\n",
        "|---|---|---|\n",
    ]
    for row in rows(package):
        installs = ", ".join(f"`{one}`" for one in row.install)
        lines.append(f"| `{row.id}` | {installs} | {row.python or package.pyproject['project']['requires-python']} |\n")
    return "".join([*lines, "\n"])


def transforms(found: list[Package]) -> str:
    """The tables of the transforms that are there, the core's first, then of each package."""
    tables = [_transforms_of("steppe", "the core, always there", core_transforms(found[0].path / "src"))]
    for package in found[1:]:
        names = package.entry_points("steppe.transforms")
        if names:
            lines = {name: summary(package.path / "src", target) for name, target in names.items()}
            tables.append(_transforms_of(package.name, f"`pip install 'steppe[{package.short}]'`", lines))
    return "\n" + "\n".join(tables) + "\n"


def _transforms_of(package: str, where: str, lines: dict[str, str]) -> str:
    # What is marked as code in docstrings is so in Markdown too.
    rows = [f"| `{name}` | {line.replace('``', '`').replace('|', '/')} |\n" for name, line in sorted(lines.items())]
    return f"## {package}\n\n{where[0].upper()}{where[1:]}.\n\n| Transform | Does |\n|---|---|\n{''.join(rows)}"


def _readmes(found: list[Package]) -> dict[Path, str]:
    """Each README that has a place for a table of versions, with its table."""
    texts = {}
    for package in found:
        path = package.path / "README.md"
        text = path.read_text(encoding="utf-8") if path.exists() else ""
        if _VERSIONS.search(text):
            body = versions(package)
            texts[path] = _VERSIONS.sub(lambda _, body=body: body, text)
    return texts


def expected() -> dict[Path, str]:
    """Each generated file with the content that it should have."""
    found = packages()
    core = CORE.read_text(encoding="utf-8")
    if not _EXTRAS.search(core):
        raise SystemExit(f"{CORE.relative_to(ROOT)} has lost the two comments between which the extras are written.")
    body = extras(found)
    generated = {CORE: _EXTRAS.sub(lambda _: body, core), TABLE: table(found)}
    page = TRANSFORMS.read_text(encoding="utf-8")
    if not _TRANSFORMS.search(page):
        raise SystemExit(f"{TRANSFORMS.relative_to(ROOT)} has lost the comments between which its tables are written.")
    written = transforms(found)
    generated[TRANSFORMS] = _TRANSFORMS.sub(lambda _: written, page)
    generated[ARCHITECTURE] = with_table(ARCHITECTURE.read_text(encoding="utf-8"))
    return {**generated, **_readmes(found)}


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--check", action="store_true", help="write nothing; exit with 1 where something is out of date"
    )
    check = parser.parse_args(arguments).check
    stale = {path: text for path, text in expected().items() if path.read_text(encoding="utf-8") != text}
    for path, text in stale.items():
        print(f"{path.relative_to(ROOT)} is out of date: nox -s sync" if check else f"wrote {path.relative_to(ROOT)}")
        if not check:
            path.write_text(text, encoding="utf-8")
    return 1 if check and stale else 0


if __name__ == "__main__":
    raise SystemExit(main())
