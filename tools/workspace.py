"""The packages of this repository, and the rows of their test matrix."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True)
class Package:
    """A package of this repository.

    Attributes:
        name: name of the distribution, such as ``"steppe-gym"``.
        path: its folder.
        pyproject: content of its pyproject.toml.
    """

    name: str
    path: Path
    pyproject: dict[str, Any]

    @property
    def short(self) -> str:
        """The name without ``steppe-``, which is also the extra of the core."""
        return self.name.removeprefix("steppe-")

    @property
    def tests(self) -> str:
        """The folder of the tests that its matrix entries run."""
        if self.name == "steppe":
            return "tests/core"
        folder = self.short.replace("-", "_")
        return f"tests/{folder}" if self.path.parent.name == "packages" else f"tests/{self.path.parent.name}/{folder}"

    @property
    def apart(self) -> bool:
        """Whether the package is tested in a separate environment.

        True if its requirements exclude those of other packages.
        """
        return bool(self.pyproject.get("tool", {}).get("steppe", {}).get("apart"))

    @property
    def version(self) -> str:
        return str(self.pyproject["project"]["version"])

    @property
    def extras(self) -> dict[str, list[str]]:
        return dict(self.pyproject["project"].get("optional-dependencies", {}))

    @property
    def requirements(self) -> list[Requirement]:
        """All requirements of the package, including those of its extras."""
        texts = [*self.pyproject["project"].get("dependencies", ())]
        for extra in self.extras.values():
            texts += extra
        return [Requirement(text) for text in texts]

    def entry_points(self, group: str) -> dict[str, str]:
        return dict(self.pyproject["project"].get("entry-points", {}).get(group, {}))

    @property
    def alternatives(self) -> tuple[str, ...]:
        """The extras of which one is needed, the preferred first.

        They are listed in the extra ``any-of``.
        """
        return tuple(item.partition("[")[2].rstrip("]") for item in self.extras.get("any-of", []))


@dataclass(frozen=True)
class Row:
    """A row of a package's test matrix: ``[[tool.steppe.matrix]]``.

    Attributes:
        id: name of the row, such as ``"gym-0.26.2"``.
        install: requirements of the row.
        local: further packages of this repository that the tests use.
        build: build tools for libraries whose sources no longer build with new ones; installed first, and the row is
            then installed without build isolation.
        dependencies: whether the dependencies of the requirements are installed too.
        python: specifier of the Python versions of the row; "" for all.
        ci: whether continuous integration runs the row.
        tests: the tests that the row runs instead of all tests of the package.
    """

    id: str
    install: tuple[str, ...]
    local: tuple[str, ...] = ()
    build: tuple[str, ...] = ()
    dependencies: bool = True
    python: str = ""
    ci: bool = False
    tests: tuple[str, ...] = ()


def read_toml(path: Path) -> dict[str, Any]:
    return tomllib.loads(path.read_text(encoding="utf-8"))


def packages() -> list[Package]:
    """Return all packages, the core first, then by name."""
    found = [
        Package(name=content["project"]["name"], path=path.parent, pyproject=content)
        for path in ROOT.glob("packages/**/pyproject.toml")
        if "project" in (content := read_toml(path))
    ]
    return sorted(found, key=lambda package: (package.name != "steppe", package.name))


def package(name: str) -> Package:
    return next(found for found in packages() if found.name == name)


def with_required(names: Iterable[str]) -> list[Package]:
    """Return packages and the packages of this repository that they require.

    Indirect requirements are included.
    """
    known = {found.name: found for found in packages()}
    needed: dict[str, Package] = {}
    open_names = list(names)
    while open_names:
        name = open_names.pop()
        if name in known and name not in needed:
            needed[name] = known[name]
            required = known[name].pyproject["project"].get("dependencies", ())
            open_names += [Requirement(text).name for text in required]
    return sorted(needed.values(), key=lambda each: each.name)


def rows(of: Package) -> list[Row]:
    declared = of.pyproject.get("tool", {}).get("steppe", {}).get("matrix", [])
    return [
        Row(**{key: tuple(value) if isinstance(value, list) else value for key, value in row.items()})
        for row in declared
    ]


def all_rows() -> Iterator[tuple[Package, Row]]:
    for found in packages():
        for row in rows(found):
            yield found, row
