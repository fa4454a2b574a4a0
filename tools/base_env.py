"""One virtual environment with torch, which the sessions' own environments see.

torch is a gigabyte: installed once for each Python in ``.nox/base-*`` and shown to a session by a ``.pth`` line that
names the base's site-packages. What the session installs itself comes before it on the path, so a row of the matrix may
have its own numpy. pip leaves the base alone, because it is outside the session's environment.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

import nox

from tools.workspace import ROOT, package

CONSTRAINTS = ROOT / "constraints.txt"

# Everything that the core depends on, and what builds and tests the packages.
_TOOLS = ("hatchling>=1.26", "editables", "pytest", "pytest-timeout")


def use_base(session: nox.Session) -> None:
    """Show the base environment of the session's Python to the session, building it where it is not there yet."""
    tag = _output(session, "import sys; print('cp%d%d' % sys.version_info[:2])")
    base = ROOT / ".nox" / f"base-{tag}"
    wanted = [*package("steppe").pyproject["project"]["dependencies"], *_TOOLS]
    torch = next(requirement for requirement in wanted if requirement.startswith("torch"))
    state = hashlib.sha256("\n".join([*wanted, CONSTRAINTS.read_text(encoding="utf-8")]).encode()).hexdigest()
    marker = base / "installed"
    python = str(base / ("Scripts/python.exe" if (base / "Scripts").is_dir() else "bin/python"))
    if not marker.is_file() or marker.read_text() != state:
        session.log(f"building {base.name}: torch and what the core needs; once")
        session.run_install("python", "-m", "venv", "--clear", str(base), silent=True)
        install = (python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-c", str(CONSTRAINTS))
        # torch by itself first: another package's requirement must not choose its build.
        session.run_install(*install, torch, external=True)
        session.run_install(*install, *wanted, external=True)
        marker.write_text(state)
    where = "import sysconfig; print(sysconfig.get_path('purelib'))"
    shown = session.run_install(python, "-c", where, external=True, silent=True)
    own = Path(_output(session, where))
    (own / "steppe_base.pth").write_text(f"{str(shown).strip()}\n")


def _output(session: nox.Session, code: str) -> str:
    # run_install, so that it also runs under --install-only.
    return str(session.run_install("python", "-c", code, silent=True)).strip()
