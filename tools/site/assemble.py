"""Assemble the source of the documentation site.

    python -m tools.site.assemble FOLDER

The pages are those of docs/, the READMEs of the packages, the documents at the top of the repository, and generated
pages. ``sphinx-build FOLDER HTML`` then builds the site; ``nox -s site`` does both.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from tools.workspace import ROOT, packages, read_toml

from . import api, commands, error_page, libraries, links

__all__ = ["assemble", "page_of_each_file"]

DOCS = ROOT / "docs"
#: Documents at the top of the repository, and their pages.
_TOP = {"ARCHITECTURE.md": "architecture.md", "CHANGELOG.md": "changelog.md", "CONTRIBUTING.md": "contributing.md"}
#: Modules that docs/conf.py imports.
_FOR_SPHINX = ("inventories.py", "mocked.py", "references.py")


def page_of_each_file() -> dict[Path, str]:
    """Return the page of each Markdown file of the repository that the site shows."""
    pages = {path.resolve(): path.relative_to(DOCS).as_posix() for path in sorted(DOCS.rglob("*.md"))}
    pages |= {(ROOT / name).resolve(): page for name, page in _TOP.items()}
    pages[(ROOT / "README.md").resolve()] = "index.md"
    wrapping = {package.name for package in libraries.library_packages()}
    for package in packages():
        folder = "environments" if package.name in wrapping else "packages"
        pages[(package.path / "README.md").resolve()] = f"{folder}/{package.short}.md"
    return pages


def assemble(folder: Path) -> None:
    """Write the source of the site to a new folder.

    Args:
        folder: is deleted if it exists.
    """
    shutil.rmtree(folder, ignore_errors=True)
    _copy_other_files(folder)
    pages = page_of_each_file()
    texts = {path: path.read_text(encoding="utf-8") for path in pages}
    titles = {page: links.title(texts[path]) for path, page in pages.items()}
    of_readme = {(package.path / "README.md").resolve(): package for package in libraries.library_packages()}
    for path, page in pages.items():
        if path == (ROOT / "README.md").resolve():
            continue  # docs/index.md is the first page; links to the README lead to it
        text = links.move(texts[path], path, page, pages, titles)
        if path in of_readme:
            text = libraries.with_gallery(text, of_readme[path])
        _write(folder / page, text)

    wrapping = list(libraries.library_packages())
    environments = folder / "environments/index.md"
    _write(environments, libraries.index(environments.read_text(encoding="utf-8"), wrapping))
    others = sorted(page for page in pages.values() if page.startswith("packages/") and not page.endswith("index.md"))
    _append_list(folder / "packages/index.md", others, titles)
    _write(folder / "errors.rst", error_page.page(DOCS))
    _write(folder / "command-line.md", commands.page())
    api.write(folder)
    _add_navigation(folder)


def _copy_other_files(folder: Path) -> None:
    """Copy pictures, programs, styles and settings of docs/, and the modules that conf.py imports."""
    for path in sorted(DOCS.rglob("*")):
        if path.is_file() and path.suffix not in (".md", ".pyc"):
            target = folder / path.relative_to(DOCS)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, target)
    (folder / "steppe_site").mkdir()
    (folder / "steppe_site/__init__.py").touch()
    for name in _FOR_SPHINX:
        shutil.copyfile(Path(__file__).parent / name, folder / "steppe_site" / name)


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def _append_list(path: Path, pages: list[str], titles: dict[str, str]) -> None:
    """Append links to pages of the same folder."""
    names = [Path(page).stem for page in pages]
    entries = "\n".join(f"- [{titles[page]}]({name}.md)" for page, name in zip(pages, names, strict=True))
    tree = "\n".join(names)
    _write(path, f"{path.read_text(encoding='utf-8')}\n{entries}\n\n```{{toctree}}\n:hidden:\n\n{tree}\n```\n")


def _add_navigation(folder: Path) -> None:
    """Add the tree of docs/navigation.toml to the first page: the site's sidebar."""
    parts = []
    for section in read_toml(DOCS / "navigation.toml")["section"]:
        names = "\n".join(section["pages"])
        parts.append(f"```{{toctree}}\n:hidden:\n:caption: {section['title']}\n\n{names}\n```\n")
    path = folder / "index.md"
    _write(path, path.read_text(encoding="utf-8") + "\n" + "\n".join(parts))


if __name__ == "__main__":
    from sphinx.ext.autodoc.mock import mock

    from .mocked import LIBRARIES, accept_missing_libraries

    accept_missing_libraries()
    with mock(LIBRARIES):
        assemble(Path(sys.argv[1]))
