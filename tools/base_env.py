"""Virtual environments that sessions share: torch, and libraries to compare with.

torch takes a gigabyte, so it is installed once for each Python in ``.nox/base-*``. A ``.pth`` line with the base's
site-packages adds it to the path of a session. Packages that the session installs come first on the path, so a row of
the matrix may have its own numpy. pip does not change the base, because it is outside the session's environment. The
libraries in ``.nox/libraries-*`` use the base, and are added in the same way to the sessions that run the main suite.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path

import nox

from tools.workspace import ROOT, package

CONSTRAINTS = ROOT / "constraints.txt"

# The requirements of the core, and the packages that build and test.
_TOOLS = ("hatchling>=1.26", "editables", "pytest", "pytest-timeout", "pytest-xdist")

_PIP = ("-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-c", str(CONSTRAINTS))
_WHERE = "import sysconfig; print(sysconfig.get_path('purelib'))"


def use_base(session: nox.Session, libraries: Iterable[str] = ()) -> None:
    """Add the base environment to the path of a session, building it if needed.

    Args:
        session: the session.
        libraries: requirements of a second environment, which is added to the session too.
    """
    tag = _output(session, "import sys; print('cp%d%d' % sys.version_info[:2])")
    wanted = [*package("steppe").pyproject["project"]["dependencies"], *_TOOLS]
    torch = next(requirement for requirement in wanted if requirement.startswith("torch"))
    # torch first, so that the requirements of other packages do not change its build.
    base = _Shared(f"base-{tag}", [[torch], wanted])
    base.build(session)
    shown = [base]
    if chosen := sorted(set(libraries)):
        shown.insert(0, _Shared(f"libraries-{tag}", [chosen], sees=base))
        shown[0].build(session)
    _show(Path(_output(session, _WHERE)), [shared.packages(session) for shared in shown])


class _Shared:
    """An environment in ``.nox`` that is rebuilt only if its requirements change.

    Args:
        name: the folder.
        steps: lists of requirements; those of a list are installed together.
        sees: an environment whose packages are added to the path.
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
        """The site-packages of the environment."""
        return str(session.run_install(self.python, "-c", _WHERE, external=True, silent=True)).strip()

    def build(self, session: nox.Session) -> None:
        """Install the environment, unless it is up to date."""
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
    """Add folders to the path of an environment, after its own packages."""
    (where / "steppe_base.pth").write_text("".join(f"{folder}\n" for folder in packages))


def _output(session: nox.Session, code: str) -> str:
    # run_install, so that it also runs under --install-only.
    return str(session.run_install("python", "-c", code, silent=True)).strip()
