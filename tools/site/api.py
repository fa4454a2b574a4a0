"""Write the API reference: one page for each subpackage of the core and for each other package."""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from tools.workspace import ROOT, packages, read_toml

__all__ = ["Module", "examples", "modules", "page"]

CORE = ROOT / "packages/core/src/steppe"


def examples() -> dict[str, str]:
    """Return the examples of names whose docstring has none, as ``module:name``; docs/api-examples holds them.

    The core is limited in size, so its examples are not in its docstrings.
    """
    return {
        name: example
        for file in sorted((ROOT / "docs/api-examples").glob("*.toml"))
        for name, example in read_toml(file).items()
    }


@dataclass(frozen=True)
class Module:
    """A module whose public names have a page.

    Attributes:
        name: such as ``"steppe.specs"``.
        users: names that users import from ``steppe``, documented under that name.
        authors: further names of its ``__all__``, for authors of environments, transforms and plugins.
    """

    name: str
    summary: str
    users: tuple[str, ...]
    authors: tuple[str, ...]

    @property
    def page(self) -> str:
        return f"api/{self.name}.rst"


def modules() -> Iterator[Module]:
    """Yield all modules with public names; each object belongs to the first module that lists it.

    Raises:
        ImportError: a module cannot be imported. Missing libraries have to be replaced by mocks before.
    """
    import steppe

    seen: set[int] = set()
    core = sorted(
        f"steppe.{path.stem}"
        for path in CORE.iterdir()
        if not path.name.startswith("_") and (path.suffix == ".py" or (path / "__init__.py").is_file())
    )
    others = sorted(
        path.name
        for package in packages()
        if package.name != "steppe"
        for path in (package.path / "src").iterdir()
        if (path / "__init__.py").is_file()
    )
    for name in [*core, *others]:
        module = importlib.import_module(name)
        public = [each for each in module.__all__ if _is_documented(module, each, seen)]
        users = tuple(each for each in public if steppe._EXPORTS.get(each) == name.partition(".")[2])
        yield Module(name, _summary(module), users, tuple(each for each in public if each not in users))


def _summary(module: ModuleType) -> str:
    return inspect.cleandoc(module.__doc__ or "").partition("\n\n")[0].replace("\n", " ")


def _is_documented(module: ModuleType, name: str, seen: set[int]) -> bool:
    """Whether a name is a class or function that is not on another page, or another name of a class."""
    value = getattr(module, name)
    if _is_alias(module, name):
        return True
    if not (inspect.isclass(value) or inspect.isroutine(value)) or id(value) in seen:
        return False
    seen.add(id(value))
    return True


def _is_alias(module: ModuleType, name: str) -> bool:
    """Whether a name is a further one of a class that has its own name in the same module."""
    value = getattr(module, name)
    own = getattr(value, "__name__", name) if inspect.isclass(value) else name
    return own != name and own in module.__all__ and getattr(module, own) is value


def page(module: Module) -> str:
    """Return the page of a module in reStructuredText."""
    parts = [_heading(module.name, "="), f"{module.summary}\n"]
    shown = examples()
    plugin = not module.name.startswith("steppe.")
    if module.users:
        parts += [_directive("steppe", name, shown.get(f"{module.name}:{name}")) for name in module.users]
    if module.authors:
        if module.users:
            parts.append(_heading(f"For authors: import from {module.name}", "-"))
        elif plugin:
            parts.append(f"Import these names from ``{module.name}``.\n")
        parts += [_directive(module.name, name, shown.get(f"{module.name}:{name}")) for name in module.authors]
    return "\n".join(parts)


def _heading(text: str, line: str) -> str:
    return f"{text}\n{line * len(text)}\n"


def _directive(module: str, name: str, example: str | None = None) -> str:
    """Return the directive of a name, with an example below its docstring."""
    found = importlib.import_module(module)
    value: Any = getattr(found, name)
    body = [] if example is None else ["", *(f"   {line}" for line in example.strip().splitlines())]
    if _is_alias(found, name):
        head = [f".. py:class:: {name}", f"   :module: {module}", ""]
        return "\n".join([*head, f"   Another name of :class:`{module}.{value.__name__}`.", *body, ""])
    lines = [".. autofunction:: {}.{}"] if not inspect.isclass(value) else [".. autoclass:: {}.{}", *_CLASS_OPTIONS]
    return "\n".join([lines[0].format(module, name), *lines[1:], *body, ""])


_CLASS_OPTIONS = ("   :members:", "   :show-inheritance:")


def index(all_modules: list[Module]) -> str:
    """Return the page that lists the modules."""
    core = [module for module in all_modules if module.name.startswith("steppe.")]
    others = [module for module in all_modules if not module.name.startswith("steppe.")]
    parts = [
        _heading("API reference", "="),
        "Names of the core are imported from ``steppe``. Transforms, collectors and environment classes of other "
        "packages can be imported from there too, if their package is installed.\n",
    ]
    for text, group in (("The core", core), ("Other packages", others)):
        parts += [_heading(text, "-"), ".. list-table::\n   :widths: 30 70\n"]
        parts += [f"   * - :doc:`{module.name}`\n     - {_plain(module.summary)}" for module in group]
        parts += ["", ".. toctree::\n   :hidden:\n", *(f"   {module.name}" for module in group), ""]
    return "\n".join(parts)


def _plain(text: str) -> str:
    """Return a summary without roles, whose targets are on the page itself."""
    return re.sub(r":\w+:`~?([^`]+)`", r"``\1``", text)


def write(folder: Path) -> list[Module]:
    """Write all pages to ``api/`` in a folder; returns the modules."""
    found = list(modules())
    (folder / "api").mkdir(parents=True, exist_ok=True)
    for module in found:
        (folder / module.page).write_text(page(module), encoding="utf-8")
    (folder / "api/index.rst").write_text(index(found), encoding="utf-8")
    return found
