"""The table of the core's modules in ARCHITECTURE.md: each module with the first line of its docstring."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from tools.workspace import ROOT

__all__ = ["ARCHITECTURE", "basenames", "modules", "with_table"]

ARCHITECTURE = ROOT / "ARCHITECTURE.md"
CORE = ROOT / "packages/core/src/steppe"

_TABLE = re.compile(
    r"(?<=<!-- Written by `nox -s sync` from the modules' docstrings: do not edit\. -->\n).*?"
    r"(?=<!-- End of what is written\. -->)",
    re.DOTALL,
)


def modules(package: Path = CORE) -> dict[str, str]:
    """Return the first line of the docstring of each module of a package, by its path in the package."""
    paths = [path for path in sorted(package.rglob("*.py")) if path.name not in ("__init__.py", "__main__.py")]
    return {path.relative_to(package).as_posix(): _first_line(path) for path in paths}


def _first_line(path: Path) -> str:
    docstring = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    return docstring.partition("\n")[0]


def basenames(package: Path = CORE) -> dict[str, list[str]]:
    """Return the modules of a package by their basename; ``base.py`` is left out, because it may repeat."""
    found: dict[str, list[str]] = {}
    for path in modules(package):
        found.setdefault(Path(path).name, []).append(path)
    found.pop("base.py", None)
    return found


def with_table(text: str) -> str:
    """Return the text of ARCHITECTURE.md with the current table of modules."""
    folders: dict[str, list[str]] = {}
    for path, summary in modules().items():
        folder = path.rpartition("/")[0] or "steppe"
        line = summary.replace("``", "`").replace("|", "\\|")
        folders.setdefault(folder, []).append(f"| `{Path(path).stem}` | {line} |\n")
    tables = [
        f"\n**{folder}**\n\n| Module | Change here |\n|---|---|\n{''.join(lines)}"
        for folder, lines in sorted(folders.items())
    ]
    body = "".join(tables)
    return _TABLE.sub(lambda _: body + "\n", text)
