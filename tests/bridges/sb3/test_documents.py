"""The programs of this package's documents run, and print the documented output."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("stable_baselines3")

from tests.limits import CHILD
from tools.workspace import ROOT

pytestmark = pytest.mark.matrix

DOCUMENTS = [ROOT / "packages/bridges/sb3/README.md", ROOT / "docs/guides/stable-baselines3.md"]
#: A block of Python, and the block with its output that may follow.
_PROGRAM = re.compile(r"^```python\n(.*?)^```$\n\n(?:^```text\n(.*?)^```$)?", re.DOTALL | re.MULTILINE)
PROGRAMS = [
    pytest.param(*found.groups(), id=f"{document.stem}, {number}")
    for document in DOCUMENTS
    for number, found in enumerate(_PROGRAM.finditer(document.read_text(encoding="utf-8")))
]


@pytest.mark.parametrize(("program", "output"), PROGRAMS)
def test_programs_print_the_documented_output(program: str, output: str | None, tmp_path: Path) -> None:
    file = tmp_path / "program.py"
    file.write_text(program, encoding="utf-8")
    done = subprocess.run([sys.executable, str(file)], capture_output=True, text=True, timeout=CHILD, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert output is None or done.stdout == output
