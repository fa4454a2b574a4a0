"""Virtual environments that sessions share: one with torch, and one with the libraries that tests compare with.

torch is a gigabyte: installed once for each Python in ``.nox/base-*`` and shown to a session by a ``.pth`` line that
names the base's site-packages. What the session installs itself comes before it on the path, so a row of the matrix may
have its own numpy. pip leaves the base alone, because it is outside the session's environment. The libraries in
``.nox/libraries-*`` see the base and are shown in the same way, to the sessions that all run parts of one suite.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path

import nox

from tools.workspace import ROOT, package

CONSTRAINTS = ROOT / "constraints.txt"

# Everything that the core depends on, and what builds and tests the packages.
_TOOLS = ("hatchling>=1.26", "editables", "pytest", "pytest-timeout", "pytest-xdist")

_PIP = ("-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-c", str(CONSTRAINTS))
_WHERE = "import sysconfig; print(sysconfig.get_path('purelib'))"


def use_base(session: nox.Session, libraries: Iterable[str] = ()) -> None:
    """Show the base environment of the session's Python to the session, building it where it is not there yet.

    Args:
        session: what is to see it.
        libraries: requirements of a second environment, which the session sees too.
    """
    tag = _output(session, "import sys; print('cp%d%d' % sys.version_info[:2])")
    wanted = [*package("steppe").pyproject["project"]["dependencies"], *_TOOLS]
    torch = next(requirement for requirement in wanted if requirement.startswith("torch"))
    # torch by itself first: another package's requirement must not choose its build.
    base = _Shared(f"base-{tag}", [[torch], wanted])
    base.build(session)
    shown = [base]
    if chosen := sorted(set(libraries)):
        shown.insert(0, _Shared(f"libraries-{tag}", [chosen], sees=base))
        shown[0].build(session)
    _show(Path(_output(session, _WHERE)), [shared.packages(session) for shared in shown])


class _Shared:
    """An environment in ``.nox`` that is kept until what it is made of changes.

    Args:
        name: its folder.
        steps: requirements, those of a step installed together.
        sees: an environment whose packages it sees.
    """

    def __init__(self, name: str, steps: list[list[str]], sees: _Shared | None = None) -> None:
        self.name, self.steps, self.sees = name, steps, sees
        self.folder = ROOT / ".nox" / name
        parts = [requirement for step in steps for requirement in step]
        parts += [CONSTRAINTS.read_text(encoding="utf-8"), sees.state if sees else ""]
        self.state = hashlib.sha256("\n".join(parts).encode()).hexdigest()

    @property
    def python(self) -> str:
        return str(self.folder / ("Scripts/python.exe" if (self.folder / "Scripts").is_dir() else "bin/python"))

    def packages(self, session: nox.Session) -> str:
        """Its site-packages."""
        return str(session.run_install(self.python, "-c", _WHERE, external=True, silent=True)).strip()

    def build(self, session: nox.Session) -> None:
        """Install it anew, but where that was done already."""
        marker = self.folder / "installed"
        if marker.is_file() and marker.read_text() == self.state:
            return
        session.log(f"building {self.name}; once")
        session.run_install("python", "-m", "venv", "--clear", str(self.folder), silent=True)
        if self.sees is not None:
            _show(Path(self.packages(session)), [self.sees.packages(session)])
        for step in self.steps:
            session.run_install(self.python, *_PIP, *step, external=True)
        marker.write_text(self.state)


def _show(where: Path, packages: list[str]) -> None:
    """Let an environment see what lies in these folders, after what is its own."""
    (where / "steppe_base.pth").write_text("".join(f"{folder}\n" for folder in packages))


def _output(session: nox.Session, code: str) -> str:
    # run_install, so that it also runs under --install-only.
    return str(session.run_install("python", "-c", code, silent=True)).strip()
