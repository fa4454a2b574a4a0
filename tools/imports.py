"""Find the imports of modules by parsing their source."""

from __future__ import annotations

import ast
import importlib.util
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Import:
    """An import of one module by another.

    Attributes:
        importer: the module that imports, in full.
        imported: the module that is imported, in full.
        names: the imported names; empty for ``import steppe.x``.
        inside: the qualified name of the function that imports, or "" at module level.
        line: line number of the import.
    """

    importer: str
    imported: str
    names: tuple[str, ...]
    inside: str
    line: int

    def __str__(self) -> str:
        place = f"{self.importer}:{self.line}" + (f" in {self.inside}" if self.inside else "")
        return f"{place} imports {', '.join(self.names) or 'it'} from {self.imported}"


class _Visitor(ast.NodeVisitor):
    """Collect imports, except those under ``if TYPE_CHECKING``, which do not run."""

    def __init__(self, module: str, package: str) -> None:
        self.module = module
        self.package = package
        self.scope: list[str] = []
        self.functions = 0
        self.found: list[Import] = []

    def visit_If(self, node: ast.If) -> None:
        if ast.unparse(node.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING"):
            for child in node.orelse:
                self.visit(child)
        else:
            self.generic_visit(node)

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self.scope.append(node.name)
        self.generic_visit(node)
        self.scope.pop()

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        self.scope.append(node.name)
        self.functions += 1
        self.generic_visit(node)
        self.functions -= 1
        self.scope.pop()

    visit_AsyncFunctionDef = visit_FunctionDef

    def visit_Import(self, node: ast.Import) -> None:
        for alias in node.names:
            self._add(alias.name, (), node.lineno)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        name = "." * node.level + (node.module or "")
        origin = importlib.util.resolve_name(name, self.package) if node.level else name
        self._add(origin, tuple(alias.name for alias in node.names), node.lineno)

    def _add(self, imported: str, names: tuple[str, ...], line: int) -> None:
        inside = ".".join(self.scope) if self.functions else ""
        self.found.append(Import(self.module, imported, names, inside, line))


def imports_of(source: Path) -> list[Import]:
    """Return all imports of the modules below a ``src`` folder."""
    found = []
    for path in sorted(source.rglob("*.py")):
        if "templates" in path.parts:
            continue
        parts = path.relative_to(source).with_suffix("").parts
        module = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        package = module if path.name == "__init__.py" else module.rpartition(".")[0]
        visitor = _Visitor(module, package)
        visitor.visit(ast.parse(path.read_text(encoding="utf-8")))
        found += visitor.found
    return found
