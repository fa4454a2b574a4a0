"""Read the first lines of the docstrings of classes, without importing them."""

from __future__ import annotations

import ast
from pathlib import Path

__all__ = ["core_transforms", "summary"]

#: Base classes among the core's transforms.
_BASES = {
    "EntryTransform",
    "EnvTransform",
    "ObservationTransform",
    "PlannedTransform",
    "SteppingTransform",
    "Transform",
}


def summary(sources: Path, target: str) -> str:
    """Return the first line of the docstring of ``"module:Class"``."""
    module, _, name = target.partition(":")
    found = _class(sources, module, name)
    if found is None:
        raise SystemExit(f"There is no class {name} in {module}, which an entry point names.")
    return _first_line(found, target)


def _first_line(node: ast.ClassDef, target: str) -> str:
    text = ast.get_docstring(node)
    if not text:
        raise SystemExit(f"{target} has no docstring, whose first line docs/transforms.md needs.")
    return text.splitlines()[0].strip()


def core_transforms(sources: Path) -> dict[str, str]:
    """Return the first line of the docstring of each transform of the core, by name."""
    folder = sources / "steppe/transforms"
    tree = ast.parse((folder / "__init__.py").read_text(encoding="utf-8"))
    classes = {}
    for node in tree.body:
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("steppe.transforms."):
            for alias in node.names:
                found = _class(sources, str(node.module), alias.name)
                if found is not None:
                    classes[alias.name] = found
    return {
        name: _first_line(node, f"steppe.transforms:{name}")
        for name, node in classes.items()
        if name not in _BASES and _is_transform(name, classes)
    }


def _is_transform(name: str, classes: dict[str, ast.ClassDef]) -> bool:
    if name in _BASES:
        return True
    bases = classes[name].bases if name in classes else []
    return any(isinstance(base, ast.Name) and _is_transform(base.id, classes) for base in bases)


def _class(sources: Path, module: str, name: str) -> ast.ClassDef | None:
    """Return the definition of a class, following the imports of packages."""
    path = sources.joinpath(*module.split("."))
    package = path.is_dir()
    file = path / "__init__.py" if package else path.with_suffix(".py")
    if not file.exists():
        return None
    tree = ast.parse(file.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef) and node.name == name:
            return node
    for node in ast.walk(tree):
        if not isinstance(node, ast.ImportFrom):
            continue
        original = next((alias.name for alias in node.names if (alias.asname or alias.name) == name), None)
        if original is None:
            continue
        above = module.split(".")
        if not package:
            above = above[:-1]
        if node.level > 1:
            above = above[: 1 - node.level]
        parts = (above if node.level else []) + (node.module.split(".") if node.module else [])
        found = _class(sources, ".".join(parts), original)
        if found is not None:
            return found
    return None
