"""The programs in the documents run, and print the documented output."""

from __future__ import annotations

import re
import subprocess
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.forked import python
from tests.limits import CHILD
from tools import documents
from tools.documents import blocks
from tools.workspace import ROOT

pytestmark = pytest.mark.programs

#: Pages whose programs run in other tests: the author's page in the session ``author``, TorchRL's in ``torchrl``.
_HELD_ELSEWHERE = ("docs/authors/write-a-plugin.md", "docs/migrating-from-torchrl.md", "docs/train-with-torchrl.md")

DOCUMENTS = [
    ROOT / "README.md",
    *sorted(ROOT.glob("packages/**/README.md")),
    *sorted(page for page in ROOT.glob("docs/**/*.md") if page.relative_to(ROOT).as_posix() not in _HELD_ELSEWHERE),
]


#: Folders of packages that are tested apart, and the modules that their documents need.
_APART = {
    "torchrl": "torchrl",
    "jax": "jax",
    "brax": "brax",
    "jumanji": "jumanji",
    "meltingpot": "meltingpot",
    "ray": "ray",
    "procgen": "procgen",
    "gymnax": "gymnax",
    "pgx": "pgx",
    "craftax": "craftax",
    "sb3": "stable_baselines3",
    "minari": "minari",
    "playground": "mujoco_playground",
    "isaac": "isaacgym",
    "smacv2": "smacv2",
    "robohive": "robohive",
    "habitat": "habitat",
    "safety-gymnasium": "safety_gymnasium",
    "pretrained": "torchvision",
}
#: The same for guides, by name.
_GUIDES_APART = {"stable-baselines3": "stable_baselines3", "data-sets": "minari"}


def programs(document: Path) -> list[tuple[str, str | None]]:
    """Return the Python blocks of a document and what they print, without those about the package acme.

    That package does not exist. What the demo writes is loaded in a test of its own.
    """
    return [(block, text) for block, text in documents.programs(document) if "acme" not in block and _DEMO not in block]


#: Where the session ``demo`` writes.
_DEMO = ".nox/demo/tmp/pendulum"


def marks(document: Path) -> list[pytest.MarkDecorator]:
    """Return marks of programs whose libraries are tested in separate sessions."""
    needed = _GUIDES_APART.get(document.stem, _APART.get(document.parent.name))
    missing = needed is not None and find_spec(needed) is None
    return [pytest.mark.skipif(missing, reason=f"{needed} is not installed")]


PROGRAMS = [
    pytest.param(program, text, id=f"{document.relative_to(ROOT)}, {number}", marks=marks(document))
    for document in DOCUMENTS
    for number, (program, text) in enumerate(programs(document))
]


DOCUMENTS_WITH_LINKS = sorted({*DOCUMENTS, *ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")})


@pytest.mark.parametrize(("program", "text"), PROGRAMS)
def test_the_programs_of_a_document_print_its_output(program: str, text: str | None, tmp_path: Path):
    file = tmp_path / "program.py"
    file.write_text(program, encoding="utf-8")

    done = subprocess.run([*python(), str(file)], capture_output=True, text=True, timeout=CHILD, cwd=tmp_path)

    assert done.returncode == 0, f"{program}\n{done.stderr}"
    assert text is None or documents.prints(text, done.stdout), f"{program}\nprints\n{done.stdout}\nand not\n{text}"


def test_the_readme_loads_what_the_demo_writes(tmp_path: Path):
    (program,) = [block for block in blocks(ROOT / "README.md") if _DEMO in block]
    collect = ["collect", "gym:Pendulum-v1", "--num-envs", "2", "--frames", "60", "--out", _DEMO]

    for command in ([*python(), "-m", "steppe", *collect], [*python(), "-c", program]):
        done = subprocess.run(command, capture_output=True, text=True, timeout=CHILD, cwd=tmp_path)
        assert done.returncode == 0, done.stderr

    assert done.stdout.startswith("torch.Size([2, 30, 3]) tensor(-")


def test_links_between_documents_lead_somewhere():
    broken = [
        f"{document.relative_to(ROOT)}: {link}"
        for document in DOCUMENTS_WITH_LINKS
        for link in re.findall(r"\]\(([^)#:]+)\)", document.read_text(encoding="utf-8"))
        if not (document.parent / link).exists()
    ]

    assert broken == []


def test_the_index_links_every_page():
    index = (ROOT / "docs/index.md").read_text(encoding="utf-8")
    pages = {page.relative_to(ROOT / "docs").as_posix() for page in ROOT.glob("docs/**/*.md")} - {"index.md"}

    assert [page for page in sorted(pages) if f"]({page})" not in index] == []


@pytest.mark.parametrize("readme", sorted(ROOT.glob("packages/**/README.md")), ids=lambda path: path.parent.name)
def test_a_packages_readme_links_documents_when_shown_alone(readme: Path):
    """A package's README has no relative links, and the documents it names exist."""
    text = readme.read_text(encoding="utf-8")
    named = re.findall(r"`(docs/[^`]+)`", text)

    assert re.findall(r"\]\((?!https?://|#)[^)]*\)", text) == []
    assert "docs/index.md" in named
    assert [path for path in named if not (ROOT / path).exists()] == []
