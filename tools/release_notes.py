"""Print the notes of a release: the section of CHANGELOG.md for a tag.

``python tools/release_notes.py v0.1.0``
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

CHANGELOG = Path(__file__).resolve().parent.parent / "CHANGELOG.md"


def notes(text: str, tag: str) -> str:
    """Return the section of a changelog for a tag such as ``v0.1.0``, without its heading.

    Raises:
        SystemExit: the changelog has no such section, or it is not yet released.
    """
    version = tag.removeprefix("v")
    for heading, body in re.findall(r"^## (.*)\n((?:(?!^## ).*\n?)*)", text, re.MULTILINE):
        if re.match(rf"{re.escape(version)}\b(?!\.)", heading):
            return str(body).strip() + "\n"
    raise SystemExit(
        f"CHANGELOG.md has no section '## {version}'; rename '## Unreleased' before the tag {tag} is made."
    )


if __name__ == "__main__":
    print(notes(CHANGELOG.read_text(encoding="utf-8"), sys.argv[1]), end="")
