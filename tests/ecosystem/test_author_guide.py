"""The author's guide shows the files that ``steppe new-plugin`` writes.

The session ``author`` also runs and breaks them.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.limits import CHILD
from tools.author import GUIDE, Author, Block, GuideError, blocks, check_excerpt, check_output, commands

TEXT = GUIDE.read_text(encoding="utf-8")
BLOCKS = blocks()


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the simulator of the guide and the package that its command writes, neither of them installed."""
    folder = tmp_path_factory.mktemp("author")
    for block in BLOCKS:
        if block.path is not None and block.path.startswith("warehouse/"):
            Author(folder).follow(block)
    (command,) = (line for block in BLOCKS for line, _ in commands_of(block) if line.startswith("steppe new-plugin"))
    path = os.pathsep.join([str(folder / "warehouse"), *filter(None, sys.path)])
    subprocess.run(
        command.replace("steppe", f"{sys.executable} -m steppe", 1),
        shell=True,
        check=True,
        cwd=folder,
        timeout=CHILD,
        stdout=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": path},
    )
    return folder


def commands_of(block: Block) -> list[tuple[str, str]]:
    return commands(block) if block.kind == "console" else []


def test_excerpts_are_what_the_command_writes(written: Path):
    shown = [block for block in BLOCKS if block.path is not None and (written / block.path).exists()]

    for block in shown:
        check_excerpt(block, written)
    names = {Path(str(block.path)).name for block in shown}
    assert names >= {"pyproject.toml", "plugin.py", "env.py", "transforms.py", "test_conformance.py"}


def test_each_breaking_change_of_the_guide_is_of_a_unique_line(written: Path):
    """A change that breaks the plugin replaces a line that is there once."""
    author = Author(written)
    for block in BLOCKS:
        if block.kind == "diff":
            author.break_file(block.text)
            for path, text in author.before.items():
                assert path.read_text(encoding="utf-8") != text
                path.write_text(text, encoding="utf-8")
            author.before.clear()

    assert sum(block.kind == "diff" or block.fails for block in BLOCKS) >= 5


@pytest.mark.parametrize(
    "question",
    [
        *("ArrayEnv, GymLikeEnv", "optional", "step_into receive", "fast path", "reset accept options", "state_dict"),
        *("kit contain", "install the package again", "not a distribution", "many versions"),
    ],
)
def test_the_guide_answers_what_authors_ask(question: str):
    headings = [line for line in TEXT.splitlines() if line.startswith("### ")]

    assert sum(question in heading for heading in headings) == 1


def test_differences_from_the_guide_are_found(tmp_path: Path):
    (tmp_path / "a.py").write_text("x = 1\ny = 2\nz = 3\n")

    check_excerpt(Block("python", "# a.py\nx = 1\n...\nz = 3\n", False), tmp_path)
    for wrong in ("x = 2\n", "z = 3\n...\nx = 1\n", "x = 1\nz = 3\n"):
        with pytest.raises(GuideError, match=r"a\.py does not have these lines"):
            check_excerpt(Block("python", f"# a.py\n{wrong}", False), tmp_path)
    check_output("c", "one two\n...\nfour", "zero one\n  two three four")
    for wrong in ("five", "four\n...\none"):
        with pytest.raises(GuideError, match="should print"):
            check_output("c", wrong, "zero one\n  two three four")


def test_a_command_that_should_fail_and_does_not_is_found(tmp_path: Path):
    author = Author(tmp_path)
    author.follow(Block("console", "$ echo one\none\n$ exit 3\n", True))

    with pytest.raises(GuideError, match="ended with status 0"):
        author.follow(Block("console", "$ echo one\none\n", True))
    with pytest.raises(GuideError, match="ended with status 3"):
        author.follow(Block("console", "$ exit 3\n", False))
