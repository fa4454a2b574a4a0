"""Build wheels of packages of this repository in one process.

pip would start several processes for each package.

``python tools/build_packages.py [--editable] FOLDER [PACKAGE...]`` writes the wheels to the folder, and deletes all
other wheels in it. Without packages, all are built. ``--editable`` makes editable wheels, as ``pip install -e`` does.
The only requirement is hatchling.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from hatchling.build import build_editable, build_wheel

ROOT = Path(__file__).resolve().parent.parent


def build(folder: Path, packages: list[Path], *, editable: bool) -> None:
    """Write a wheel of each package into a folder."""
    every = sorted(path.parent for path in (ROOT / "packages").rglob("pyproject.toml") if ".venv" not in path.parts)
    folder, packages = folder.resolve(), [package.resolve() for package in packages or every]
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("*.whl"):
        old.unlink()
    for package in packages:
        os.chdir(package)  # the build backend reads the current folder
        (build_editable if editable else build_wheel)(str(folder))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Build wheels of packages of this repository.")
    parser.add_argument("--editable", action="store_true", help="make editable wheels")
    parser.add_argument("folder", type=Path)
    parser.add_argument("packages", type=Path, nargs="*")
    arguments = parser.parse_args()
    build(arguments.folder, arguments.packages, editable=arguments.editable)
