"""The source of the documentation site: navigation, links, the page of errors, and the check of the built pages."""

from __future__ import annotations

import subprocess
from collections import Counter
from pathlib import Path

import pytest

from tests.forked import python
from tests.limits import CHILD
from tools import documents
from tools.site import api, check, error_page, links
from tools.site.assemble import page_of_each_file
from tools.workspace import ROOT, read_toml

DOCS = ROOT / "docs"
ERRORS = read_toml(DOCS / "errors.toml")
#: Pages that are generated, or that the index of their folder lists.
GENERATED = {"api/index", "command-line", "errors"}


def test_each_page_stands_once_in_the_navigation():
    named = Counter(page for section in read_toml(DOCS / "navigation.toml")["section"] for page in section["pages"])
    pages = {page.removesuffix(".md") for page in page_of_each_file().values()} | GENERATED
    listed = {page for page in pages if page.startswith(("packages/", "environments/")) and not page.endswith("/index")}

    assert {page: times for page, times in named.items() if times > 1} == {}
    assert set(named) == pages - listed - {"index"}


def test_a_class_keeps_its_entry_beside_its_other_names():
    names = ("BaseCollector", "DataCollectorBase")
    page = api.page(api.Module("steppe.collectors", "Collectors.", users=names, authors=()))

    assert ".. py:class:: BaseCollector\n   :module: steppe\n" in page
    assert "Another name of :class:`steppe.DataCollectorBase`." in page
    assert ".. autoclass:: steppe.DataCollectorBase\n" in page


def test_each_error_says_what_to_do():
    assert {each.__name__ for each in error_page.classes()} == set(ERRORS)
    assert all(entry["fix"].strip().endswith((".", "`")) for entry in ERRORS.values())


@pytest.mark.programs
@pytest.mark.parametrize("name", [name for name, entry in ERRORS.items() if "program" in entry])
def test_the_program_of_an_error_prints_its_text(name: str, tmp_path: Path):
    program = ERRORS[name]["program"]
    done = subprocess.run([*python(), "-c", program], capture_output=True, text=True, timeout=CHILD, cwd=tmp_path)

    assert done.returncode == 0, done.stderr
    assert documents.prints(ERRORS[name]["text"], done.stdout), done.stdout


@pytest.fixture
def pages(tmp_path: Path) -> dict[Path, str]:
    """Two pages of a repository, and the file that marks its root."""
    names = {"docs/guides/a.md": "guides/a.md", "docs/b.md": "b.md", "CHANGELOG.md": "changelog.md"}
    names["README.md"] = "index.md"
    return {(tmp_path / file).resolve(): page for file, page in names.items()}


@pytest.mark.parametrize(
    ("text", "moved"),
    [
        ("[B](../b.md#part)", "[B](../b.md#part)"),
        ("[changes](../../CHANGELOG.md)", "[changes](../changelog.md)"),
        ("[the program](../../benchmarks/x.py)", "the program"),
        ("see `docs/b.md`", "see [Title of B](../b.md)"),
        ("[plugins](../../README.md#plugins)", "[plugins](../index.md)"),
        ("[home](https://example.org/b.md)", "[home](https://example.org/b.md)"),
        ("```\n[B](../../CHANGELOG.md)\n```", "```\n[B](../../CHANGELOG.md)\n```"),
    ],
)
def test_links_lead_to_pages_of_the_site(text: str, moved: str, pages: dict[Path, str], tmp_path: Path):
    source = (tmp_path / "docs/guides/a.md").resolve()

    assert links.move(text, source, "guides/a.md", pages, {"b.md": "Title of B"}) == moved


def test_the_check_names_missing_files_anchors_and_lonely_pages(tmp_path: Path):
    (tmp_path / "index.html").write_text('<a href="a.html#there">a</a><a href="a.html#gone">a</a><img src="b.png">')
    (tmp_path / "a.html").write_text('<p id="there"><a href="index.html">home</a></p>')
    (tmp_path / "alone.html").write_text("<p>nobody links here</p>")

    assert sorted(check.problems(tmp_path)) == [
        "alone.html: no page links to it",
        "index.html: a.html#gone names a missing anchor",
        "index.html: b.png does not exist",
    ]
