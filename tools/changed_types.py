"""Check the types of the packages of changed files: ``python tools/changed_types.py FILE...``.

pre-commit runs this with the files of a commit. It needs nox, which has mypy in the session ``types``.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def sources(files: Iterable[str]) -> list[str]:
    """Return the ``src`` folders of the packages that the files are in, each once."""
    found = set()
    for file in files:
        before, part, _ = file.replace("\\", "/").partition("/src/")
        if part and before.startswith("packages/"):
            found.add(f"{before}/src")
    return sorted(found)


if __name__ == "__main__":
    chosen = sources(sys.argv[1:])
    if chosen:
        sys.exit(subprocess.run([sys.executable, "-m", "nox", "-R", "-s", "types", "--", *chosen], cwd=ROOT).returncode)
