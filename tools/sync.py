"""Write the files that are generated from the packages' pyproject.toml files.

These are the authors and classifiers of each package, the extras of the core, the table of the names that first-party
packages provide, the tables of versions in READMEs, the table of all transforms in docs/transforms.md, and the table of
the core's modules in ARCHITECTURE.md.
``--check`` writes nothing, and fails if a file is out of date.
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
    "function": "steppe.functions",
    "dataset": "steppe.datasets",
    "logger": "steppe.loggers",
    "command": "steppe.commands",
}

#: What the page of every package on an index shows.
_METADATA = """authors = [{ name = "the steppe authors" }]
classifiers = [
    "Development Status :: 4 - Beta",
    "Intended Audience :: Developers",
    "Intended Audience :: Science/Research",
    "Operating System :: POSIX :: Linux",
    "Programming Language :: Python :: 3",
    "Programming Language :: Python :: 3.10",
    "Programming Language :: Python :: 3.11",
    "Programming Language :: Python :: 3.12",
    "Programming Language :: Python :: 3.13",
    "Topic :: Scientific/Engineering :: Artificial Intelligence",
    "Typing :: Typed",
]
"""
_OLD_METADATA = re.compile(r"^authors = .*\n|^classifiers = \[\n(?: .*\n)*\]\n", re.MULTILINE)
_PYTHON = re.compile(r"^requires-python = .*\n", re.MULTILINE)

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


def extras(all_packages: list[Package]) -> str:
    """Return the body of the core's ``[project.optional-dependencies]``."""
    lines = []
    plugins = [package for package in all_packages if package.name != "steppe"]
    for package in plugins:
        alternative = f"[{package.alternatives[0]}]" if package.alternatives else ""
        lines.append(f'{package.short} = ["{package.name}{alternative}{_compatible(package.version)}"]\n')
    families = [package.short for package in plugins if package.entry_points("steppe.transforms")]
    # `all` leaves out packages with `heavy = true` in their pyproject.toml, which install gigabytes.
    light = [package.short for package in plugins if not _settings(package).get("heavy") and package.short != "testing"]
    if families:
        lines.append(f'transforms = ["steppe[{",".join(families)}]"]\n')
    lines.append(f'all = ["steppe[{",".join(light)}]"]\n')
    return "".join(lines)


def table(all_packages: list[Package]) -> str:
    """Return the content of ``known.json``."""
    names = {
        kind: {name: package.name for package in all_packages for name in package.entry_points(group)}
        for kind, group in _KINDS.items()
    }
    alternatives = {package.name: package.alternatives for package in all_packages if package.alternatives}
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
    """Return the table of a README: required and tested versions of the library."""
    required = [item for item in package.requirements if not item.name.startswith("steppe")]
    ranges = ", ".join(f"`{item}`" for item in required)
    lines = [
        f"\nRequired: {ranges}. Tested with:\n\n",
        "| Matrix entry | Installs | Python |\n",
        "|---|---|---|\n",
    ]
    for row in rows(package):
        installs = ", ".join(f"`{item}`" for item in row.install)
        lines.append(f"| `{row.id}` | {installs} | {row.python or package.pyproject['project']['requires-python']} |\n")
    return "".join([*lines, "\n"])


def transforms(all_packages: list[Package]) -> str:
    """Return the tables of all transforms, first of the core, then of each package."""
    tables = [_transforms_of("steppe", "part of the core", core_transforms(all_packages[0].path / "src"))]
    for package in all_packages[1:]:
        names = package.entry_points("steppe.transforms")
        if names:
            lines = {name: summary(package.path / "src", target) for name, target in names.items()}
            tables.append(_transforms_of(package.name, f"`pip install 'steppe[{package.short}]'`", lines))
    return "\n" + "\n".join(tables) + "\n"


def _transforms_of(package: str, where: str, lines: dict[str, str]) -> str:
    # Convert the code marks of docstrings to those of Markdown.
    rows = [f"| `{name}` | {line.replace('``', '`').replace('|', '/')} |\n" for name, line in sorted(lines.items())]
    return f"## {package}\n\n{where[0].upper()}{where[1:]}.\n\n| Transform | Purpose |\n|---|---|\n{''.join(rows)}"


def with_metadata(text: str) -> str:
    """Return a pyproject.toml with the authors and classifiers of all packages, behind ``requires-python``."""
    return _PYTHON.sub(lambda match: match.group() + _METADATA, _OLD_METADATA.sub("", text), count=1)


def _readmes(all_packages: list[Package]) -> dict[Path, str]:
    """Return each README that has a table of versions, with the new table."""
    texts = {}
    for package in all_packages:
        path = package.path / "README.md"
        text = path.read_text(encoding="utf-8") if path.exists() else ""
        if _VERSIONS.search(text):
            body = versions(package)
            texts[path] = _VERSIONS.sub(lambda _, body=body: body, text)
    return texts


def expected() -> dict[Path, str]:
    """Return each generated file with its expected content."""
    all_packages = packages()
    projects = {package.path / "pyproject.toml" for package in all_packages}
    generated = {path: with_metadata(path.read_text(encoding="utf-8")) for path in projects}
    core = generated[CORE]
    if not _EXTRAS.search(core):
        raise SystemExit(f"{CORE.relative_to(ROOT)} lacks the two comments around the generated extras.")
    body = extras(all_packages)
    generated |= {CORE: _EXTRAS.sub(lambda _: body, core), TABLE: table(all_packages)}
    page = TRANSFORMS.read_text(encoding="utf-8")
    if not _TRANSFORMS.search(page):
        raise SystemExit(f"{TRANSFORMS.relative_to(ROOT)} lacks the comments around its generated tables.")
    written = transforms(all_packages)
    generated[TRANSFORMS] = _TRANSFORMS.sub(lambda _: written, page)
    generated[ARCHITECTURE] = with_table(ARCHITECTURE.read_text(encoding="utf-8"))
    return {**generated, **_readmes(all_packages)}


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 if a file is out of date")
    check = parser.parse_args(arguments).check
    stale = {path: text for path, text in expected().items() if path.read_text(encoding="utf-8") != text}
    for path, text in stale.items():
        print(f"{path.relative_to(ROOT)} is out of date: nox -s sync" if check else f"wrote {path.relative_to(ROOT)}")
        if not check:
            path.write_text(text, encoding="utf-8")
    return 1 if check and stale else 0


if __name__ == "__main__":
    raise SystemExit(main())
