"""The commands in the READMEs of packages run, and comments of programs hide no code."""

from __future__ import annotations

import os
import subprocess
import sys
import tokenize
from io import StringIO
from pathlib import Path

import pytest

from tests.limits import CHILD
from tools.build_packages import build
from tools.documents import blocks, shell_blocks
from tools.workspace import ROOT

README = sorted(ROOT.glob("packages/**/README.md"))
COMMANDS = [
    pytest.param(commands, id=f"{readme.parent.name}, {number}")
    for readme in README
    for number, commands in enumerate(shell_blocks(readme))
]

#: What the README of steppe-record calls `my_module`.
POLICY = """
import torch


def policy(observation):
    return torch.zeros(*observation.shape[:-1], 6)
"""


@pytest.fixture(scope="module")
def wheels(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheels")
    before = Path.cwd()
    build(folder, [], editable=False)
    os.chdir(before)
    return folder


@pytest.mark.programs
@pytest.mark.parametrize("commands", COMMANDS)
def test_the_commands_of_a_readme_run(commands, wheels, tmp_path):
    """pip only resolves the names, from local wheels; a recording is cut after three steps."""
    (tmp_path / "my_module.py").write_text(POLICY, encoding="utf-8")
    pip = {"PIP_DRY_RUN": "1", "PIP_NO_INDEX": "1", "PIP_NO_DEPS": "1", "PIP_FIND_LINKS": str(wheels)}
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    commands = commands.replace("--out", "--steps 3 --out")

    done = subprocess.run(
        ["sh", "-e", "-c", commands],
        capture_output=True,
        text=True,
        timeout=CHILD,
        cwd=tmp_path,
        env={**os.environ, **pip, "PATH": path},
    )

    assert done.returncode == 0, f"{commands}\n{done.stderr}"
    assert "does not provide the extra" not in done.stderr


def comments(program: str) -> list[str]:
    """The comments of a program."""
    return [
        token.string for token in tokenize.generate_tokens(StringIO(program).readline) if token.type == tokenize.COMMENT
    ]


@pytest.mark.parametrize(
    "document",
    [*README, *sorted(ROOT.glob("docs/**/*.md")), *ROOT.glob("*.md")],
    ids=lambda path: str(path.relative_to(ROOT)),
)
def test_no_comment_of_a_program_hides_code(document):
    """Joined lines would put the code of the second line into the comment of the first."""
    hiding = [comment for block in blocks(document) for comment in comments(block) if is_joined(comment)]

    assert hiding == []


def is_joined(comment: str) -> bool:
    """Whether a comment holds another comment, or ends with an assignment or an import."""
    return " #" in comment or comment.rstrip().endswith((" =", " import", "("))


def test_joined_lines_are_recognised():
    assert is_joined('# or "dm:cheetah/run" env.set_seed(0)  # the same data')
    assert is_joined("# adds all infos that are numbers env =")
    assert not is_joined("# [8, 100, 1]: environments, steps")
