"""Wheels of this repository's packages in a folder, and environments that install from it as from an index."""

from __future__ import annotations

from pathlib import Path

import nox

from tools.workspace import ROOT, Package, packages


def build_wheels(session: nox.Session) -> str:
    """Build a wheel of every package with the build tools of the base environment; returns their folder."""
    house = str(Path(session.create_tmp()).resolve() / "wheels")
    session.run("python", str(ROOT / "tools/build_packages.py"), house, *(str(package.path) for package in packages()))
    return house


def new_environment(session: nox.Session, name: str) -> str:
    """Make an environment in which nothing is but what the session's base shows it; returns its Python.

    The base (tools/base_env.py) has torch, what else the core depends on, and build and test tools: a gigabyte that
    would otherwise be unpacked for each. No package of this repository is there, and no library of environments.
    """
    folder = Path(session.create_tmp()) / name
    session.run("python", "-m", "venv", "--clear", "--without-pip", str(folder), silent=True)
    python = str(folder / ("Scripts/python.exe" if (folder / "Scripts").is_dir() else "bin/python"))
    where = "import sysconfig; print(sysconfig.get_path('purelib'))"
    own, new = (
        Path(str(session.run(which, "-c", where, external=True, silent=True)).strip()) for which in ("python", python)
    )
    (new / "steppe_base.pth").write_text((own / "steppe_base.pth").read_text())
    return python


def install_extras(session: nox.Session, python: str, house: str, *extras: str) -> None:
    """Install ``steppe[extras]`` from the wheels, and what it needs of others from the index."""
    core = packages()[0]
    pip = ("python", "-m", "pip", "--python", python, "install", "--quiet", "--find-links", house)
    session.run(*pip, f"steppe[{','.join(extras)}]=={core.version}")


def families() -> list[Package]:
    """The packages that bring transforms and no environments."""
    return [
        package
        for package in packages()
        if package.entry_points("steppe.transforms") and not package.entry_points("steppe.envs")
    ]
