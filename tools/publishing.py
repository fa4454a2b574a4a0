"""Print the order in which packages are published.

Each package comes after the packages of this repository that it requires. Each line is one round, whose packages can be
published in any order. Extras are ignored: ``steppe[gym]`` cannot be installed before steppe-gym is published, but no
package depends on it.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from packaging.requirements import Requirement

from tools.workspace import packages


def rounds() -> list[list[str]]:
    """Return the names of the packages by round, sorted in each round.

    Raises:
        ValueError: packages require each other.
    """
    needs = {
        package.name: {Requirement(line).name for line in package.pyproject["project"].get("dependencies", ())}
        for package in packages()
    }
    found: list[list[str]] = []
    while needs:
        ready = sorted(name for name, wanted in needs.items() if not wanted & set(needs))
        if not ready:
            raise ValueError(f"these packages require each other: {sorted(needs)}")
        found.append(ready)
        for name in ready:
            del needs[name]
    return found


if __name__ == "__main__":
    for number, names in enumerate(rounds(), 1):
        print(f"{number}. {' '.join(names)}")
