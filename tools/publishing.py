"""Print in which order the packages are published: each after those of ours that it requires.

One line is one round, whose packages may go in any order. Extras count for nothing here: nobody can install
``steppe[gym]`` before steppe-gym is there, and nothing else waits for it.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from packaging.requirements import Requirement

from tools.workspace import packages


def rounds() -> list[list[str]]:
    """The names of the packages, round by round, sorted in each.

    Raises:
        ValueError: packages require each other in a circle.
    """
    needs = {
        package.name: {Requirement(line).name for line in package.pyproject["project"].get("dependencies", ())}
        for package in packages()
    }
    found: list[list[str]] = []
    while needs:
        ready = sorted(name for name, wanted in needs.items() if not wanted & set(needs))
        if not ready:
            raise ValueError(f"these packages require each other in a circle: {sorted(needs)}")
        found.append(ready)
        for name in ready:
            del needs[name]
    return found


if __name__ == "__main__":
    for number, names in enumerate(rounds(), 1):
        print(f"{number}. {' '.join(names)}")
