"""Build wheels of this repository's packages, and install from them."""

from __future__ import annotations

from pathlib import Path

import nox

from tools.workspace import ROOT, Package, packages


def build_wheels(session: nox.Session) -> str:
    """Build a wheel of every package, and return their folder.

    The build tools are those of the base environment.
    """
    house = str(Path(session.create_tmp()).resolve() / "wheels")
    session.run("python", str(ROOT / "tools/build_packages.py"), house, *(str(package.path) for package in packages()))
    return house


def new_environment(session: nox.Session, name: str) -> str:
    """Make an environment that has only the packages of the base environment.

    Returns its Python. The base (tools/base_env.py) has torch, the other requirements of the core, and build and test
    tools, which would take a gigabyte for each environment. It has no package of this repository, and no library of
    environments.
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
    """Install ``steppe[extras]`` from the wheels, and other packages from the index."""
    core = packages()[0]
    pip = ("python", "-m", "pip", "--python", python, "install", "--quiet", "--find-links", house)
    session.run(*pip, f"steppe[{','.join(extras)}]=={core.version}")


def families() -> list[Package]:
    """Return the packages that have transforms but no environments, and are tested with the others."""
    return [
        package
        for package in packages()
        if package.entry_points("steppe.transforms") and not package.entry_points("steppe.envs") and not package.apart
    ]
